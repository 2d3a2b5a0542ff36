//! Real DLQ entries for unit tests, as smallage wrote them.

/// An entry's id and its fields in stored order.
pub(super) type Record = (String, Vec<(Vec<u8>, Vec<u8>)>);

/// The entries of `tests/records/smallage-dlq.jsonl`, oldest first.
pub(super) fn all() -> Vec<Record> {
    include_str!("../../tests/records/smallage-dlq.jsonl").lines().map(read).collect()
}

fn read(line: &str) -> Record {
    let record: serde_json::Value = serde_json::from_str(line).unwrap();
    let fields = record["fields"].as_array().unwrap();
    let fields = fields.iter().map(|field| (bytes(&field[0]), bytes(&field[1]))).collect();
    (record["entry_id"].as_str().unwrap().to_owned(), fields)
}

/// A string is its UTF-8; other bytes stand as `{"base64": "…"}`.
fn bytes(value: &serde_json::Value) -> Vec<u8> {
    use base64::Engine as _;
    match value.as_str() {
        Some(text) => text.as_bytes().to_vec(),
        None => base64::engine::general_purpose::STANDARD.decode(value["base64"].as_str().unwrap()).unwrap(),
    }
}

//! What a payload is: JSON, MessagePack, text, or bytes that only its owner can read.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rmpv::Value;
use serde::{
    Serialize, Serializer,
    de::IgnoredAny,
    ser::{SerializeMap as _, SerializeSeq as _},
};
use utoipa::ToSchema;

/// A MessagePack payload with more bytes is not read: few of them may stand for very many values.
const LARGEST_PACK: usize = 1 << 20;
/// Nor is one nested deeper.
const DEEPEST: u16 = 64;

/// What a payload turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// Nothing.
    Empty,
    /// A JSON document.
    Json,
    /// A MessagePack map or list.
    Msgpack,
    /// Printable text.
    Text,
    /// Anything else.
    Bytes,
}

/// What a payload is, and its text: JSON as it was written, MessagePack as JSON, text as it is; none for bytes.
pub fn decode(payload: &[u8]) -> (Form, Option<String>) {
    if payload.is_empty() {
        return (Form::Empty, None);
    }
    let printable = |text: &str| text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t'));
    match std::str::from_utf8(payload) {
        Ok(text) if serde_json::from_str::<IgnoredAny>(text).is_ok() => (Form::Json, Some(text.to_owned())),
        Ok(text) if printable(text) => (Form::Text, Some(text.to_owned())),
        _ => unpack(payload).map_or((Form::Bytes, None), |json| (Form::Msgpack, Some(json))),
    }
}

/// A MessagePack document as JSON; none if it is not one from its first byte to its last. Of single values almost any
/// byte is one, so only maps and lists count.
fn unpack(payload: &[u8]) -> Option<String> {
    if payload.len() > LARGEST_PACK {
        return None;
    }
    let mut rest = payload;
    let value = rmpv::decode::read_value_with_max_depth(&mut rest, DEEPEST.into()).ok()?;
    if !rest.is_empty() || !(value.is_map() || value.is_array()) {
        return None;
    }
    serde_json::to_string(&AsJson(&value)).ok()
}

/// MessagePack in the words of JSON: bytes as `{"base64": …}`, extensions with their type, whatever else is no text
/// where JSON wants a name as its JSON, numbers that JSON has not as text.
struct AsJson<'a>(&'a Value);

impl Serialize for AsJson<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Nil => to.serialize_unit(),
            Value::Boolean(value) => to.serialize_bool(*value),
            Value::Integer(value) => match (value.as_u64(), value.as_i64()) {
                (Some(value), _) => to.serialize_u64(value),
                (None, value) => to.serialize_i64(value.unwrap_or_default()),
            },
            Value::F32(value) if value.is_finite() => to.serialize_f32(*value),
            Value::F64(value) if value.is_finite() => to.serialize_f64(*value),
            Value::F32(value) => to.collect_str(value),
            Value::F64(value) => to.collect_str(value),
            Value::String(value) => match value.as_str() {
                Some(text) => to.serialize_str(text),
                None => bytes(value.as_bytes(), None, to),
            },
            Value::Binary(value) => bytes(value, None, to),
            Value::Ext(kind, value) => bytes(value, Some(*kind), to),
            Value::Array(values) => {
                let mut list = to.serialize_seq(Some(values.len()))?;
                for value in values {
                    list.serialize_element(&AsJson(value))?;
                }
                list.end()
            }
            Value::Map(pairs) => {
                let mut map = to.serialize_map(Some(pairs.len()))?;
                for (name, value) in pairs {
                    match name.as_str() {
                        Some(name) => map.serialize_key(name)?,
                        None => map.serialize_key(&serde_json::to_string(&AsJson(name)).unwrap_or_default())?,
                    }
                    map.serialize_value(&AsJson(value))?;
                }
                map.end()
            }
        }
    }
}

fn bytes<S: Serializer>(value: &[u8], extension: Option<i8>, to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(None)?;
    if let Some(kind) = extension {
        map.serialize_entry("extension", &kind)?;
    }
    map.serialize_entry("base64", &STANDARD.encode(value))?;
    map.end()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_payload_is_what_it_is() {
        for (payload, form, text) in [
            (&b""[..], Form::Empty, None),
            (b" {\"i\": 1.10}", Form::Json, Some(" {\"i\": 1.10}")),
            (b"17", Form::Json, Some("17")),
            ("größe\nzwei".as_bytes(), Form::Text, Some("größe\nzwei")),
            (b"a\x1b[2J", Form::Bytes, None),
            (b"\x93\x01\xff\xc0", Form::Msgpack, Some("[1,-1,null]")),
            (b"\x82\xa1a\x01\xa1b\x92\xc3\xa2\xc3\xa9", Form::Msgpack, Some("{\"a\":1,\"b\":[true,\"é\"]}")),
            // Names keep their order, and may come twice.
            (b"\x83\xa1b\x01\xa1a\x02\xa1b\x03", Form::Msgpack, Some("{\"b\":1,\"a\":2,\"b\":3}")),
            (b"\x82\x07\x01\x92\x01\x02\x03", Form::Msgpack, Some("{\"7\":1,\"[1,2]\":3}")),
            (b"\x92\xc4\x02\x00\xff\xa1\xff", Form::Msgpack, Some("[{\"base64\":\"AP8=\"},{\"base64\":\"/w==\"}]")),
            (b"\x91\xd4\xff\x01", Form::Msgpack, Some("[{\"extension\":-1,\"base64\":\"AQ==\"}]")),
            (b"\x91\xcb\x7f\xf8\0\0\0\0\0\0", Form::Msgpack, Some("[\"NaN\"]")),
            (b"\x91\xcf\xff\xff\xff\xff\xff\xff\xff\xff", Form::Msgpack, Some("[18446744073709551615]")),
            // Cut off, with something behind it, and a single value.
            (b"\x82\xa1a\x1b", Form::Bytes, None),
            (b"\x91\x01\x02", Form::Bytes, None),
            (b"\xc0", Form::Bytes, None),
        ] {
            assert_eq!(decode(payload), (form, text.map(str::to_owned)), "{payload:?}");
        }
    }

    #[test]
    fn what_would_take_too_much_is_left_as_bytes() {
        let deep = [vec![0x91; 100], vec![0xc0]].concat();
        // A list that says it has four billion elements, and one that has too many.
        let large = [&[0xdd, 0xff, 0xff, 0xff, 0xff][..], &[0xc0; 100]].concat();
        let long = [&[0xdd, 0x00, 0x20, 0x00, 0x00][..], &vec![0xc0; 1 << 21]].concat();
        for payload in [deep, large, long] {
            assert_eq!(decode(&payload), (Form::Bytes, None));
        }
    }

    proptest! {
        #[test]
        fn whatever_it_is_the_json_is_json(payload in prop::collection::vec(any::<u8>(), 0..64), first in 0x80_u8..0xa0) {
            for payload in [payload.clone(), [vec![first], payload].concat()] {
                if let (Form::Json | Form::Msgpack, text) = decode(&payload) {
                    prop_assert!(serde_json::from_str::<serde_json::Value>(&text.unwrap()).is_ok());
                }
            }
        }
    }
}

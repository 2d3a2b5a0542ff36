//! Everything about one entry.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Serialize, Serializer, ser::SerializeMap as _};

use super::{
    Detail, Error, Result,
    listing::counts_of,
    payload::{Form, decode},
};
use crate::{
    event::{Include, JobDead},
    ledger::{JobCounts, RawLetter, TriageLedger},
};
use utoipa::ToSchema;

/// An entry with nothing left out and nothing changed.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The source's name.
    pub source: String,
    /// The entry, decoded and as recorded.
    pub raw: RawLetter,
    /// What the ledger knows of its job.
    pub counts: JobCounts,
}

/// Reads an entry; none if it is not in the DLQ.
pub async fn show(ledger: &dyn TriageLedger, entry_id: &str) -> Result<Option<Shown>> {
    let raw = ledger.entry(entry_id).await.map_err(Error::of(ledger))?;
    match raw {
        Some(raw) => Shown::of(ledger, raw).await.map(Some),
        None => Ok(None),
    }
}

impl Shown {
    /// An entry that was read before.
    pub async fn of(ledger: &dyn TriageLedger, raw: RawLetter) -> Result<Shown> {
        let counts = counts_of(ledger, std::slice::from_ref(&raw.letter)).await.map_err(Error::of(ledger))?;
        let counts = counts.first().copied().unwrap_or_default();
        Ok(Shown { source: ledger.name().to_owned(), raw, counts })
    }

    /// As `-o json` prints it and HTTP answers; without the payload for who may not see it, and then without the record
    /// either.
    pub fn exact(&self, with_payload: bool) -> Exact<'_> {
        let letter = &self.raw.letter;
        let all = Include { traceback: true, history: true, payload: false };
        let (form, text) = decode(&letter.payload);
        let job = JobDead {
            deaths: self.counts.deaths,
            retries: self.counts.retries,
            payload: with_payload.then(|| STANDARD.encode(&letter.payload)),
            ..JobDead::of(&self.source, letter, all)
        };
        let Detail { is_cut, lost, .. } = Detail::of(letter);
        Exact {
            job,
            traceback_cut: is_cut,
            error_from_history: lost,
            payload_form: form,
            payload_bytes: letter.payload.len(),
            payload_text: text.filter(|_| with_payload),
            fields: with_payload
                .then(|| self.raw.fields.iter().map(|(name, value)| (Bytes(name), Bytes(value))).collect()),
        }
    }
}

/// The JSON of one entry.
#[derive(Debug, Serialize, ToSchema)]
pub struct Exact<'a> {
    /// The fields of the `job.dead` event, with traceback, history and payload.
    #[serde(flatten)]
    pub job: JobDead,
    /// `traceback` ends before it is told.
    pub traceback_cut: bool,
    /// `error` is that of the newest recorded attempt, for the record does not tell the last failure.
    pub error_from_history: bool,
    /// `empty`, `json`, `msgpack`, `text` or `bytes`.
    pub payload_form: Form,
    /// Its size.
    pub payload_bytes: usize,
    /// JSON as it was written, MessagePack as JSON, text as it is; none for bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_text: Option<String>,
    /// The record as stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Vec<serde_json::Value>>>)]
    pub fields: Option<Vec<(Bytes<'a>, Bytes<'a>)>>,
}

/// A text where the bytes are UTF-8, else `{"base64": …}`.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a>(&'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        if let Ok(text) = std::str::from_utf8(self.0) {
            return to.serialize_str(text);
        }
        let mut map = to.serialize_map(Some(1))?;
        map.serialize_entry("base64", &STANDARD.encode(self.0))?;
        map.end()
    }
}

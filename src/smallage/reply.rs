//! Reads Redis's answers, which may have any shape, without ever failing in the middle of one.

use redis::Value;

use super::ingest::count;
use crate::{
    ledger::{JobCounts, PlanEnd, Result, StoreError},
    letter::Millis,
};

/// An answer in pieces, taken from the front.
#[derive(Debug)]
pub(super) struct Reply(std::vec::IntoIter<Value>);

impl Reply {
    /// The pieces of an array.
    pub(super) fn array(value: Value) -> Result<Reply> {
        match value {
            Value::Array(items) => Ok(Reply(items.into_iter())),
            other => Err(unexpected("an array", &other)),
        }
    }

    /// The pieces of an array, or none of what is not there.
    pub(super) fn list(value: Value) -> Result<Reply> {
        match value {
            Value::Nil => Ok(Reply(Vec::new().into_iter())),
            value => Reply::array(value),
        }
    }

    /// The pieces behind the `OK` of a script's answer, or the error that its first word means.
    pub(super) fn of_script(value: Value) -> Result<Reply> {
        let mut reply = Reply::array(value)?;
        match reply.text()?.as_str() {
            "OK" => Ok(reply),
            "FENCED" => Err(StoreError::Fenced),
            "MOVED" => Err(StoreError::Moved),
            other => Err(StoreError::Unexpected(format!("a script answered {other:?}"))),
        }
    }

    /// As [`Reply::of_script`], of a script that may have found plans stale.
    pub(super) fn of_plans(value: Value) -> Result<PlanEnd<Reply>> {
        let is_stale =
            |items: &[Value]| items.first().is_some_and(|word| text(word).is_some_and(|word| word == "STALE"));
        match value {
            Value::Array(items) if is_stale(&items) => {
                let mut reply = Reply(items.into_iter());
                reply.next()?;
                let mut counts = Vec::with_capacity(reply.len() / 2);
                while reply.len() >= 2 {
                    let (deaths, retries) = (count(reply.number()?), count(reply.number()?));
                    counts.push(JobCounts { deaths, retries });
                }
                Ok(PlanEnd::Stale(counts))
            }
            value => Reply::of_script(value).map(PlanEnd::Stands),
        }
    }

    /// How many pieces are left.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The next piece.
    pub(super) fn next(&mut self) -> Result<Value> {
        self.0.next().ok_or_else(|| StoreError::Unexpected("an answer is too short".to_owned()))
    }

    /// The next piece as text.
    pub(super) fn text(&mut self) -> Result<String> {
        text(&self.next()?).ok_or_else(|| StoreError::Unexpected("an answer has no text where one belongs".to_owned()))
    }

    /// The next piece as a whole number that is not negative; a negative one counts as 0.
    pub(super) fn number(&mut self) -> Result<u64> {
        let value = self.next()?;
        number(&value).ok_or_else(|| unexpected("a number", &value))
    }

    /// The next piece as a list of places in a list of ours.
    pub(super) fn numbers(&mut self) -> Result<Vec<usize>> {
        let mut list = Reply::array(self.next()?)?;
        let mut numbers = Vec::with_capacity(list.len());
        while list.len() > 0 {
            numbers.push(usize::try_from(list.number()?).unwrap_or(usize::MAX));
        }
        Ok(numbers)
    }

    /// The next two pieces as the seconds and microseconds of `TIME`.
    pub(super) fn time(&mut self) -> Result<Millis> {
        let (seconds, micros) = (self.number()?, self.number()?);
        let ms = seconds.saturating_mul(1_000).saturating_add(micros / 1_000);
        Ok(Millis(i64::try_from(ms).unwrap_or(i64::MAX)))
    }
}

/// A value as text, lossily.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        Value::Okay => Some("OK".to_owned()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

/// A value as a whole number; a negative one counts as 0.
pub(super) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => Some(u64::try_from(*number).unwrap_or(0)),
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
        Value::SimpleString(text) => text.parse().ok(),
        _ => None,
    }
}

/// One entry of a stream: its id, and its fields as stored.
pub(super) type StreamEntry = (String, Vec<(Vec<u8>, Vec<u8>)>);

/// The entries of an `XRANGE` answer, names and values byte for byte. A hole (an entry deleted meanwhile) is left out.
pub(super) fn entries(value: Value) -> Result<Vec<StreamEntry>> {
    let items = match value {
        Value::Array(items) => items,
        Value::Nil => Vec::new(),
        other => return Err(unexpected("stream entries", &other)),
    };
    let mut entries = Vec::with_capacity(items.len());
    for item in items {
        let mut entry = Reply::array(item)?;
        let id = entry.text()?;
        let Value::Array(flat) = entry.next()? else { continue };
        let mut fields = Vec::with_capacity(flat.len() / 2);
        let mut flat = flat.into_iter();
        while let (Some(name), Some(value)) = (flat.next(), flat.next()) {
            fields.push((bytes(name), bytes(value)));
        }
        entries.push((id, fields));
    }
    Ok(entries)
}

/// The entries of an `XREAD` answer for one stream.
pub(super) fn read_entries(value: Value) -> Result<Vec<StreamEntry>> {
    let streams = match value {
        Value::Nil => return Ok(Vec::new()),
        Value::Map(streams) => streams.into_iter().map(|(_, entries)| entries).collect(),
        Value::Array(streams) => {
            let mut inner = Vec::with_capacity(streams.len());
            for stream in streams {
                let mut stream = Reply::array(stream)?;
                stream.next()?;
                inner.push(stream.next()?);
            }
            inner
        }
        other => return Err(unexpected("streams", &other)),
    };
    streams.into_iter().next().map_or_else(|| Ok(Vec::new()), entries)
}

/// A value byte for byte.
pub(super) fn bytes(value: Value) -> Vec<u8> {
    match value {
        Value::BulkString(bytes) => bytes,
        other => text(&other).unwrap_or_default().into_bytes(),
    }
}

fn unexpected(wanted: &str, value: &Value) -> StoreError {
    let got = match value {
        Value::Nil => "nil",
        Value::Int(_) => "a number",
        Value::BulkString(_) | Value::SimpleString(_) | Value::Okay => "a text",
        Value::Array(_) => "an array",
        _ => "something else",
    };
    StoreError::Unexpected(format!("wanted {wanted}, got {got}"))
}

//! Looking through the DLQ piece by piece, with a sieve on the store's side of the wire.

use super::{
    Smallage,
    connection::Arg,
    record::{self, LOOKED_AT},
    reply::{self, Reply},
    sieve::SieveArgs,
};
use crate::{
    ledger::{OutboxId, Result, Scan, Scanned},
    letter::Millis,
};

impl Smallage {
    pub(super) async fn scan_dlq(&self, scan: &Scan) -> Result<Scanned> {
        let Some((from, upto)) = bounds(scan) else { return Ok(Scanned::default()) };
        let names: Vec<&str> =
            LOOKED_AT.into_iter().filter(|name| !(scan.without_payload && *name == "payload")).collect();
        let sieve = SieveArgs::of(&scan.sieve);
        let mut args = vec![
            Arg::Text(if scan.oldest_first { "XRANGE" } else { "XREVRANGE" }),
            Arg::Text(&from),
            Arg::Text(&upto),
            Arg::place(scan.max.max(1)),
            Arg::Text(self.keys.queues()),
            Arg::place(names.len()),
        ];
        args.extend(names.iter().map(|name| Arg::Text(name)));
        sieve.args(&mut args);
        let answer = self.commands.run_reading_script(&self.scripts.scan, &[&self.keys.dlq()], &args).await?;
        let mut reply = Reply::of_script(answer)?;
        let (looked_at, next) = (reply.number()?, reply.text()?);
        let mut given = Reply::array(reply.next()?)?;
        let mut letters = Vec::with_capacity(given.len() / 2);
        while given.len() >= 2 {
            let (id, mut values) = (given.text()?, Reply::array(given.next()?)?);
            let mut fields = Vec::with_capacity(names.len());
            for name in &names {
                fields.push((name.as_bytes().to_vec(), reply::bytes(values.next()?)));
            }
            letters.push(record::decode(&self.keys, &id, fields));
        }
        Ok(Scanned { letters, looked_at, next: Some(next).filter(|next| !next.is_empty()) })
    }
}

/// From where to where, as Redis takes it; none if nothing can lie there.
fn bounds(scan: &Scan) -> Option<(String, String)> {
    const LAST: OutboxId = OutboxId { ms: u64::MAX, seq: u64::MAX };
    let from = match &scan.from {
        None => None,
        Some(from) => match from.parse::<OutboxId>() {
            Ok(from) => Some(from),
            // What is no id is told by Redis.
            Err(_) => return Some((format!("({from}"), "+".to_owned())),
        },
    };
    let ms = |at: Millis| u64::try_from(at.0).unwrap_or(0);
    let since = scan.since.map(|since| OutboxId { ms: ms(since), seq: 0 });
    let until = scan.until.map(|until| OutboxId { ms: ms(until), seq: u64::MAX });
    let text = |id: Option<OutboxId>, end: &str| id.map_or_else(|| end.to_owned(), |id| id.to_string());
    if scan.oldest_first {
        let begin = match from {
            Some(LAST) => return None,
            Some(from) if since.is_none_or(|since| from >= since) => format!("({from}"),
            _ => text(since, "-"),
        };
        return Some((begin, text(until, "+")));
    }
    let begin = match from {
        Some(from) if from == OutboxId::default() => return None,
        Some(from) if until.is_none_or(|until| from <= until) => format!("({from}"),
        _ => text(until, "+"),
    };
    Some((begin, text(since, "-")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_lies_between_the_nearest_bounds() {
        let last = "18446744073709551615-18446744073709551615";
        // Oldest first; from; since; until; from where to where.
        for (oldest_first, from, since, until, expected) in [
            (true, None, None, None, Some(("-", "+"))),
            (false, None, None, None, Some(("+", "-"))),
            (true, Some("5-1"), None, None, Some(("(5-1", "+"))),
            (false, Some("5-1"), None, None, Some(("(5-1", "-"))),
            (true, Some("5-1"), Some(6), Some(9), Some(("6-0", "9-18446744073709551615"))),
            (true, Some("7-1"), Some(6), Some(9), Some(("(7-1", "9-18446744073709551615"))),
            (false, Some("7-1"), Some(6), Some(9), Some(("(7-1", "6-0"))),
            (false, Some("10-0"), Some(6), Some(9), Some(("9-18446744073709551615", "6-0"))),
            (true, None, Some(-5), None, Some(("0-0", "+"))),
            (true, Some(last), None, None, None),
            (false, Some(last), None, None, Some(("(18446744073709551615-18446744073709551615", "-"))),
            (false, Some("0-0"), None, None, None),
            (true, Some("0-0"), None, None, Some(("(0-0", "+"))),
        ] {
            let scan = Scan {
                oldest_first,
                from: from.map(str::to_owned),
                since: since.map(Millis),
                until: until.map(Millis),
                ..Scan::default()
            };
            let expected = expected.map(|(from, upto)| (from.to_owned(), upto.to_owned()));
            assert_eq!(bounds(&scan), expected, "{scan:?}");
        }
    }
}

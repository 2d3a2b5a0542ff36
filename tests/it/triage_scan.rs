//! Looking through a DLQ piece by piece, in a real Redis.

use proptest::{prelude::*, strategy::ValueTree as _, test_runner::TestRunner};
use redis::AsyncCommands as _;
use sexton::{
    ledger::{Ledger as _, Scan, Scanned, Sieve, TriageLedger as _},
    letter::{DeadLetter, Millis},
    rule::{Globs, Matcher, Subject},
    smallage::Smallage,
};

use crate::support::{
    graveyard::{Fields, bury, bury_as, bury_many, bury_rubbish, dlq, letter, recorded, with},
    redis::Redis,
    yard::{NS, smallage},
};

/// Everything that a scan lets through, piece by piece.
async fn all(ledger: &Smallage, scan: &Scan) -> (Vec<DeadLetter>, u64) {
    let (mut scan, mut letters, mut looked_at) = (scan.clone(), Vec::new(), 0);
    loop {
        let Scanned { letters: some, looked_at: more, next } = ledger.scan(&scan).await.unwrap();
        assert!(some.len() <= scan.max, "no more than was asked for");
        letters.extend(some);
        looked_at += more;
        let Some(next) = next else { return (letters, looked_at) };
        assert_ne!(scan.from.as_ref(), Some(&next), "it comes on");
        scan.from = Some(next);
    }
}

fn ids(letters: &[DeadLetter]) -> Vec<String> {
    letters.iter().map(|letter| letter.entry_id.clone()).collect()
}

fn globs(written: &[&str]) -> Option<Globs> {
    Some(Globs::new(&written.iter().map(|glob| globset::Glob::new(glob).unwrap()).collect::<Vec<_>>()).unwrap())
}

#[tokio::test]
async fn pieces_neither_skip_nor_repeat_whichever_way() {
    let redis = Redis::start().await;
    let (ledger, mut con) = (smallage(&redis), redis.connect().await);
    assert_eq!(all(&ledger, &Scan { max: 10, ..Scan::default() }).await, (Vec::new(), 0), "without a DLQ");
    let buried = bury_many(&mut con, NS, 0..1_500).await;
    for max in [1_usize, 7, 100, 10_000] {
        let scan = Scan { max, oldest_first: true, ..Scan::default() };
        let few = Scan { until: Some(Millis(id_ms(&buried[20]))), ..scan.clone() };
        let scan = if max == 1 { few } else { scan };
        let (letters, looked_at) = all(&ledger, &scan).await;
        assert_eq!(ids(&letters), buried[..letters.len()], "{max}");
        assert!(letters.len() as u64 == looked_at && (max == 1 || looked_at == 1_500), "{max}: {looked_at}");
        let (mut letters, _) = all(&ledger, &Scan { oldest_first: false, ..scan }).await;
        letters.reverse();
        assert_eq!(ids(&letters), buried[..letters.len()], "{max}, the newest first");
    }
    // What comes and goes meanwhile is no trouble.
    let scan = Scan { max: 100, oldest_first: true, ..Scan::default() };
    let first = ledger.scan(&scan).await.unwrap();
    let next = first.next.unwrap();
    let () = con.xdel(dlq(NS), &[&next, &buried[150]]).await.unwrap();
    let (rest, _) = all(&ledger, &Scan { from: Some(next), ..scan }).await;
    assert_eq!((first.letters.len(), rest.len()), (100, 1_399));
}

fn id_ms(id: &str) -> i64 {
    id.split('-').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn what_is_decoded_is_what_the_record_says() {
    let redis = Redis::start().await;
    let (ledger, mut con) = (smallage(&redis), redis.connect().await);
    for entry in recorded() {
        bury_as(&mut con, NS, &entry.id, &entry.fields).await;
    }
    bury_rubbish(&mut con, NS).await;
    let mut doubled = letter(NS, 1);
    doubled.extend(letter(NS, 2));
    doubled.push((b"\xff\x00".to_vec(), b"x".to_vec()));
    let mut late = doubled.clone();
    late.retain(|(name, _)| name != b"task");
    for fields in [&doubled, &late] {
        bury_as(&mut con, NS, "18446744073709551615-*", fields).await;
    }
    bury_as(&mut con, NS, "18446744073709551615-18446744073709551615", &doubled).await;
    let page = ledger.page(None, 10_000).await.unwrap().letters;
    let (letters, _) = all(&ledger, &Scan { max: 50, ..Scan::default() }).await;
    assert!(page.len() > 60, "{}", page.len());
    assert_eq!(ids(&letters), ids(&page));
    assert!(letters == page);
    let (forwards, _) = all(&ledger, &Scan { max: 50, oldest_first: true, ..Scan::default() }).await;
    assert_eq!(forwards.into_iter().rev().collect::<Vec<_>>(), page);
    let (letters, _) = all(&ledger, &Scan { max: 50, without_payload: true, ..Scan::default() }).await;
    let without: Vec<_> = page.into_iter().map(|letter| DeadLetter { payload: Vec::new(), ..letter }).collect();
    assert_eq!(letters, without);
}

#[tokio::test]
async fn ids_bound_a_scan_in_time() {
    let redis = Redis::start().await;
    let (ledger, mut con) = (smallage(&redis), redis.connect().await);
    for id in ["5-1", "6-1", "6-2", "7-1", "9-1"] {
        bury_as(&mut con, NS, id, &letter(NS, 1)).await;
    }
    for (since, until, from, oldest_first, expected) in [
        (Some(6), None, None, true, &["6-1", "6-2", "7-1", "9-1"][..]),
        (Some(6), Some(7), None, false, &["7-1", "6-2", "6-1"]),
        (Some(6), Some(7), Some("6-2"), true, &["7-1"]),
        (Some(6), Some(7), Some("6-2"), false, &["6-1"]),
        (None, Some(6), Some("9-9"), false, &["6-2", "6-1", "5-1"]),
        (Some(6), None, Some("1-0"), true, &["6-1", "6-2", "7-1", "9-1"]),
        (Some(8), Some(6), None, true, &[]),
        (Some(10), None, None, false, &[]),
    ] {
        let from = from.map(str::to_owned);
        let (since, until) = (since.map(Millis), until.map(Millis));
        let scan = Scan { since, until, from, oldest_first, max: 2, ..Scan::default() };
        assert_eq!(ids(&all(&ledger, &scan).await.0), expected, "{scan:?}");
    }
    let odd = ledger.scan(&Scan { from: Some("no id".to_owned()), max: 2, ..Scan::default() }).await;
    assert!(odd.is_err(), "{odd:?}");
}

#[tokio::test]
async fn a_sieve_spares_the_wire_what_does_not_match() {
    let redis = Redis::start().await;
    let (ledger, mut con) = (smallage(&redis), redis.connect().await);
    let mut plain = letter(NS, 1);
    bury(&mut con, NS, &plain).await;
    plain = with(&plain, "dlq_source", b"{lrs}:q:high priority:12");
    bury(&mut con, NS, &with(&plain, "task", b"send_email")).await;
    let foreign = with(&plain, "dlq_source", b"partner:events");
    bury(&mut con, NS, &with(&foreign, "dlq_reason", b"max_deliveries")).await;
    let job = sexton_job(1);
    for (sieve, passed) in [
        (Sieve::default(), 3),
        (Sieve { task: globs(&["charge_*"]), ..Sieve::default() }, 1),
        (Sieve { task: globs(&["*_*"]), ..Sieve::default() }, 2),
        (Sieve { task: globs(&["send_?mail", "x"]), ..Sieve::default() }, 1),
        (Sieve { task: globs(&[""]), ..Sieve::default() }, 1),
        (Sieve { task: globs(&["{send,charge}_*"]), ..Sieve::default() }, 3),
        (Sieve { task: globs(&[]), ..Sieve::default() }, 0),
        (Sieve { queue: globs(&["default"]), ..Sieve::default() }, 1),
        (Sieve { queue: globs(&["*:*", "h*y"]), ..Sieve::default() }, 2),
        (Sieve { reason: Some(vec!["max_deliveries".to_owned()]), ..Sieve::default() }, 1),
        (Sieve { reason: Some(Vec::new()), ..Sieve::default() }, 0),
        (Sieve { job_id: Some(job.clone()), ..Sieve::default() }, 2),
        (Sieve { job_id: Some(job), queue: globs(&["*priority"]), ..Sieve::default() }, 1),
        (Sieve { job_id: Some(String::new()), ..Sieve::default() }, 1),
    ] {
        let found = ledger.scan(&Scan { sieve: sieve.clone(), max: 10, ..Scan::default() }).await.unwrap();
        assert_eq!((found.letters.len(), found.looked_at, found.next), (passed, 3, None), "{sieve:?}");
    }
}

fn sexton_job(n: u64) -> String {
    crate::support::graveyard::job_id(n)
}

/// Names that are plain, odd, or not UTF-8.
fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => "[ab./%]{0,5}".prop_map(String::into_bytes),
        2 => "[abé☕\n]{0,4}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..4),
        1 => "a{510,514}b?".prop_map(String::into_bytes),
    ]
}

fn source() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        5 => ("[ab]{0,3}", "(:[0-9]{1,2}|:|:x|)").prop_map(|(queue, end)| format!("{{{NS}}}:q:{queue}{end}").into_bytes()),
        1 => name().prop_map(|mut name| { name.splice(0..0, format!("{{{NS}}}:q:").into_bytes()); name }),
        1 => name(),
        1 => Just(b"{other}:q:a:0".to_vec()),
    ]
}

fn entry() -> impl Strategy<Value = Fields> {
    let field = prop_oneof![
        name().prop_map(|task| (b"task".to_vec(), task)),
        name().prop_map(|id| (b"id".to_vec(), id)),
        source().prop_map(|source| (b"dlq_source".to_vec(), source)),
        name().prop_map(|reason| (b"dlq_reason".to_vec(), reason)),
    ];
    // Of some there are two.
    prop::collection::vec(field, 1..8)
}

fn some_globs() -> impl Strategy<Value = Option<Vec<String>>> {
    prop::option::of(prop::collection::vec("([ab?*./%]|é|\\[ab\\]|\\{a,b\\}){0,5}", 0..3))
}

fn compiled(written: &Option<Vec<String>>) -> Option<Globs> {
    let globs: Result<Vec<_>, _> = written.as_ref()?.iter().map(|glob| globset::Glob::new(glob)).collect();
    Globs::new(&globs.ok()?).ok()
}

/// A name that the store cannot read as surely as whoever decodes it.
fn is_odd(name: &str) -> bool {
    !name.is_ascii() || name.len() >= 510
}

#[tokio::test]
async fn whatever_a_filter_would_pass_the_sieve_lets_through() {
    let redis = Redis::start().await;
    let (ledger, mut con) = (smallage(&redis), redis.connect().await);
    let mut runner = TestRunner::deterministic();
    let reasons = prop::option::of(prop::collection::vec("[ab]{0,2}", 0..3));
    let case =
        (prop::collection::vec(entry(), 1..12), some_globs(), some_globs(), reasons, prop::option::of("[ab]{0,2}"));
    let (mut kept_back, mut passed) = (0, 0);
    for _ in 0..400 {
        let (entries, task, queue, reason, job_id) = case.new_tree(&mut runner).unwrap().current();
        let () = con.del(dlq(NS)).await.unwrap();
        for fields in &entries {
            bury(&mut con, NS, fields).await;
        }
        let sieve = Sieve { task: compiled(&task), queue: compiled(&queue), reason, job_id };
        let matcher = Matcher {
            task: sieve.task.clone(),
            queue: sieve.queue.clone(),
            reason: sieve.reason.clone(),
            ..Matcher::default()
        };
        let (everything, _) = all(&ledger, &Scan { max: 100, ..Scan::default() }).await;
        let scan = Scan { max: 100, sieve: sieve.clone(), ..Scan::default() };
        let (sieved, _) = all(&ledger, &scan).await;
        let sieved = ids(&sieved);
        let all_plain = [&sieve.task, &sieve.queue].into_iter().flatten().all(|globs| globs.plain().is_some());
        for letter in everything {
            let exact = matcher.matches(&Subject::of("orders", &letter))
                && sieve.job_id.as_ref().is_none_or(|job| *job == letter.job_id);
            let through = sieved.contains(&letter.entry_id);
            assert!(through || !exact, "{letter:?} {sieve:?}");
            let odd = [&letter.task, &letter.queue, &letter.job_id, &letter.origin, letter.reason.as_str()]
                .into_iter()
                .any(is_odd);
            assert!(!through || exact || odd || !all_plain, "{letter:?} {sieve:?}");
            kept_back += u32::from(!through);
            passed += u32::from(exact && sieve.task.is_some());
        }
    }
    assert!(kept_back > 500 && passed > 30, "{kept_back} {passed}");
}

#[tokio::test]
async fn large_entries_come_one_by_one_and_leave_nothing_behind() {
    let redis = Redis::start().await;
    let (ledger, mut con) = (smallage(&redis), redis.connect().await);
    bury_many(&mut con, NS, 0..20).await;
    for size in [200_000; 40].into_iter().chain([8_000_000; 10]) {
        bury(&mut con, NS, &with(&letter(NS, 1), "payload", &vec![b'x'; size])).await;
    }
    let peak = async |con: &mut redis::aio::MultiplexedConnection| {
        let info: redis::InfoDict = redis::cmd("INFO").arg("memory").query_async(con).await.unwrap();
        let number = |name| info.get::<u64>(name).unwrap();
        (number("used_memory_peak"), number("used_memory"))
    };
    let () = redis::cmd("CONFIG").arg("RESETSTAT").query_async(&mut con).await.unwrap();
    let (_, before) = peak(&mut con).await;
    for without_payload in [true, false] {
        let mut scan = Scan { max: 1_000, oldest_first: true, without_payload, ..Scan::default() };
        let (mut pieces, mut letters) = (0, 0);
        loop {
            let piece = ledger.scan(&scan).await.unwrap();
            let sizes: Vec<usize> = piece.letters.iter().map(|letter| letter.payload.len()).collect();
            let but_one = sizes.iter().sum::<usize>() - sizes.iter().max().unwrap_or(&0);
            assert!(but_one < 1_500_000, "{sizes:?}");
            assert!(piece.looked_at <= 40, "{}", piece.looked_at);
            pieces += 1;
            letters += piece.letters.len();
            let Some(next) = piece.next else { break };
            scan.from = Some(next);
        }
        assert!(letters == 70 && pieces > 10, "{letters} in {pieces}");
    }
    let (peak, _) = peak(&mut con).await;
    assert!(peak.saturating_sub(before) < 80_000_000, "{peak} {before}: no more than one of the largest at a time");
}

#[tokio::test]
async fn a_piece_of_ordinary_entries_is_bounded() {
    let redis = Redis::start().await;
    let (ledger, mut con) = (smallage(&redis), redis.connect().await);
    bury_many(&mut con, NS, 0..2_000).await;
    let whole = ledger.scan(&Scan { max: 10_000, ..Scan::default() }).await.unwrap();
    assert!((100..400).contains(&whole.looked_at) && whole.next.is_some(), "{}", whole.looked_at);
    let sieve = Sieve { task: globs(&["none"]), ..Sieve::default() };
    let none = ledger.scan(&Scan { max: 10_000, sieve, ..Scan::default() }).await.unwrap();
    assert!((200..800).contains(&none.looked_at) && none.next.is_some(), "{}", none.looked_at);
    assert!(none.letters.is_empty());
}

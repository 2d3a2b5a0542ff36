//! What the ledger keeps of the watch over the line, in a real Redis.

use redis::AsyncCommands as _;
use sexton::{
    alert::Fields,
    event::{Alert, EventData, Lane},
    ledger::{Cursor, Lease, OutboxId, SavedWatch, StoreError},
};

use crate::support::{
    graveyard::{bury, bury_many, dlq, letter, with},
    yard::{NS, Yard, waits},
};

const WATCH: &str = "{lrs}:sexton:watch";
const ALERTS: &str = "{lrs}:sexton:outbox:alerts";

fn pairs(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    fields.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

fn set(fields: &[(&str, &str)]) -> Fields {
    Fields { set: pairs(fields), remove: Vec::new() }
}

fn firing(incident: &str) -> EventData {
    EventData::AlertFiring(Box::new(Alert {
        source: "orders".to_owned(),
        incident: incident.to_owned(),
        ..Alert::default()
    }))
}

async fn incidents(yard: &Yard) -> Vec<String> {
    let page = yard.ledger.outbox(Lane::Alerts, OutboxId::default(), 100).await.unwrap();
    assert_eq!(page.unreadable, 0);
    let incident = |data: &EventData| data.alert().map(|alert| alert.incident.clone());
    page.events.iter().filter_map(|posted| incident(&posted.event.data)).collect()
}

#[tokio::test]
async fn a_watch_is_saved_with_what_it_tells_over_the_revision_it_was_loaded_at() {
    let mut yard = Yard::open().await;
    let (ledger, lease) = (yard.ledger.clone(), yard.lease.clone());
    assert_eq!(ledger.load_watch().await.unwrap(), SavedWatch::default());
    assert_eq!(ledger.counted_until().await.unwrap(), None);
    let told = ledger.outbox_changes(Lane::Alerts);
    let fields = set(&[("cursor", "5-1"), ("m1", "[]"), ("k0", "ä\n☕")]);
    assert_eq!(ledger.save_watch(&lease, 0, &fields, &[]).await.unwrap(), 1);
    assert!(!told.has_changed().unwrap(), "nothing was told");
    assert_eq!(ledger.counted_until().await.unwrap(), Some(OutboxId { ms: 5, seq: 1 }));
    let change = Fields { set: pairs(&[("m1", "[1]")]), remove: vec!["k0".to_owned(), "k9".to_owned()] };
    assert_eq!(ledger.save_watch(&lease, 1, &change, &[firing("a"), firing("b")]).await.unwrap(), 2);
    assert!(told.has_changed().unwrap());
    let mut saved = ledger.load_watch().await.unwrap();
    saved.fields.sort();
    assert_eq!(saved, SavedWatch { revision: 2, fields: pairs(&[("cursor", "5-1"), ("m1", "[1]")]) });

    let before = yard.picture().await;
    for over in [0, 1, 3] {
        assert_eq!(ledger.save_watch(&lease, over, &fields, &[firing("c")]).await, Err(StoreError::Moved), "{over}");
    }
    let other = Lease { epoch: lease.epoch + 1, ..lease.clone() };
    assert_eq!(ledger.save_watch(&other, 2, &fields, &[firing("c")]).await, Err(StoreError::Fenced));
    assert_eq!(yard.picture().await, before);
    assert_eq!(incidents(&yard).await, ["a", "b"]);
}

#[tokio::test]
async fn a_whole_day_of_fields_is_saved_in_one_step() {
    let mut yard = Yard::open().await;
    let names: Vec<String> = (0..9_000).map(|n| format!("m{n}")).collect();
    let fields = Fields { set: names.iter().map(|name| (name.clone(), "[]".to_owned())).collect(), remove: Vec::new() };
    yard.ledger.save_watch(&yard.lease, 0, &fields, &[]).await.unwrap();
    assert_eq!(yard.con.hlen::<_, usize>(WATCH).await.unwrap(), 9_001);
    assert_eq!(yard.ledger.load_watch().await.unwrap().fields.len(), 9_000);
    let fields = Fields { set: Vec::new(), remove: names };
    yard.ledger.save_watch(&yard.lease, 1, &fields, &[]).await.unwrap();
    assert_eq!(yard.ledger.load_watch().await.unwrap(), SavedWatch { revision: 2, fields: Vec::new() });
}

#[tokio::test]
async fn rubbish_in_the_place_of_the_watch_makes_room() {
    let mut yard = Yard::open().await;
    let fields = set(&[("m1", "[]")]);
    let () = yard.con.set(WATCH, "a text").await.unwrap();
    assert_eq!(yard.ledger.counted_until().await.unwrap(), None);
    assert_eq!(yard.ledger.load_watch().await.unwrap(), SavedWatch::default());
    assert_eq!(yard.ledger.save_watch(&yard.lease, 0, &fields, &[firing("a")]).await.unwrap(), 1);
    for revision in ["", "x", "-1", "1.5", "+5", "1e3", "0x10", " 7", "100000000000000000000", "9007199254740993"] {
        let () = yard.con.hset(WATCH, "revision", revision).await.unwrap();
        let saved = yard.ledger.load_watch().await.unwrap();
        assert_eq!((saved.revision, saved.fields.len()), (0, 1), "{revision}");
        assert_eq!(yard.ledger.save_watch(&yard.lease, 0, &fields, &[]).await.unwrap(), 1, "{revision}");
    }
    let () = yard.con.hset(WATCH, "revision", "000007").await.unwrap();
    assert_eq!(yard.ledger.load_watch().await.unwrap().revision, 7);
    assert_eq!(yard.ledger.save_watch(&yard.lease, 7, &fields, &[]).await.unwrap(), 8);
    let () = yard.con.hset(WATCH, &b"\xff\xfe"[..], &b"\x00\xff"[..]).await.unwrap();
    assert_eq!(yard.ledger.load_watch().await.unwrap().fields.len(), 2);
}

#[tokio::test]
async fn what_cannot_be_told_is_not_remembered_either() {
    let mut yard = Yard::open().await;
    let fields = set(&[("m1", "[]")]);
    let () = yard.con.set(ALERTS, "a text").await.unwrap();
    let before = yard.picture().await;
    let refused = yard.ledger.save_watch(&yard.lease, 0, &fields, &[firing("a")]).await;
    assert!(matches!(refused, Err(StoreError::Unexpected(_))), "{refused:?}");
    assert_eq!(yard.picture().await, before);
    assert_eq!(yard.ledger.save_watch(&yard.lease, 0, &fields, &[]).await.unwrap(), 1, "there is nothing to tell");
    let () = yard.con.del(ALERTS).await.unwrap();

    let before = yard.picture().await;
    let limit = async |con: &mut redis::aio::MultiplexedConnection, limit: &str| {
        let () = redis::cmd("CONFIG").arg(&["SET", "maxmemory", limit]).query_async(con).await.unwrap();
    };
    limit(&mut yard.con, "1").await;
    for events in [&[][..], &[firing("a")]] {
        let refused = yard.ledger.save_watch(&yard.lease, 1, &fields, events).await;
        assert!(matches!(refused, Err(StoreError::NoWrites(_))), "{refused:?}");
    }
    limit(&mut yard.con, "0").await;
    assert_eq!(yard.picture().await, before);
    for command in ["xadd", "hset", "hdel", "del"] {
        let mut acl = redis::cmd("ACL");
        let () = acl.arg(&["SETUSER", "default", &format!("-{command}")]).query_async(&mut yard.con).await.unwrap();
        let refused = yard.ledger.save_watch(&yard.lease, 1, &fields, &[firing("a")]).await;
        assert!(matches!(refused, Err(StoreError::Denied(_))), "{command}: {refused:?}");
        assert_eq!(yard.picture().await, before, "{command}");
        let mut acl = redis::cmd("ACL");
        let () = acl.arg(&["SETUSER", "default", &format!("+{command}")]).query_async(&mut yard.con).await.unwrap();
    }
}

#[tokio::test]
async fn entries_are_browsed_in_order_beside_a_read_that_waits() {
    let yard = Yard::open().await;
    let mut con = yard.redis.connect().await;
    let nothing = yard.ledger.browse(&Cursor::default(), 10).await.unwrap();
    assert!(nothing.caught_up && nothing.letters.is_empty() && nothing.cursor == Cursor::default());
    let ids = bury_many(&mut con, NS, 0..5).await;
    let heavy = bury(&mut con, NS, &with(&letter(NS, 5), "payload", &vec![b'x'; 100_000])).await;
    // One read waits for what comes after these.
    let ledger = yard.ledger.clone();
    let last = Cursor(heavy.clone());
    let waiting = tokio::spawn(async move { ledger.read(&last, 10, Some(std::time::Duration::from_secs(5))).await });
    let first = yard.ledger.browse(&Cursor::default(), 4).await.unwrap();
    let entries =
        |batch: &sexton::ledger::Batch| batch.letters.iter().map(|letter| letter.entry_id.clone()).collect::<Vec<_>>();
    assert_eq!((entries(&first), first.caught_up), (ids[..4].to_vec(), false));
    let rest = yard.ledger.browse(&first.cursor, 4).await.unwrap();
    assert_eq!((entries(&rest), rest.caught_up), (vec![ids[4].clone(), heavy.clone()], true));
    assert_eq!(rest.cursor, Cursor(heavy));
    assert!(rest.heaviest > 100_000 && first.heaviest < 10_000, "{} {}", first.heaviest, rest.heaviest);
    let new = bury(&mut con, NS, &letter(NS, 6)).await;
    assert_eq!(entries(&waiting.await.unwrap().unwrap()), [new]);
}

#[tokio::test]
async fn a_survey_tells_where_the_outbox_ends() {
    let mut yard = Yard::open().await;
    let told = async |yard: &Yard| yard.ledger.survey(&yard.lease).await.unwrap().told;
    assert_eq!(told(&yard).await, None);
    bury_many(&mut yard.con, NS, 0..3).await;
    yard.ingest(&waits).await;
    let end = yard.ledger.outbox_end(Lane::Deaths).await.unwrap();
    assert_eq!(told(&yard).await, Some(end));
    yard.ledger.outbox_trim(&yard.lease, Lane::Deaths, OutboxId { ms: u64::MAX, seq: 0 }, None).await.unwrap();
    assert_eq!(told(&yard).await, Some(end), "also when nothing is left of it");
    let () = yard.con.del(dlq(NS)).await.unwrap();
    assert_eq!(told(&yard).await, Some(end), "also where there is no DLQ");
    let () = yard.con.set("{lrs}:sexton:outbox:deaths", "a text").await.unwrap();
    assert_eq!(told(&yard).await, None);
}

//! Operations.

use super::*;
use crate::ledger::OperationState;

fn request() -> Request {
    let filter = FilterSpec { task: vec!["send_*".into()], ..FilterSpec::default() };
    Request { act: Act::Retry, filter, by: anna(), dry_run: false, per_second: Some(5) }
}

#[tokio::test]
async fn an_operation_is_asked_for_looked_at_and_cancelled_once() {
    let fake = Fake::new("orders", letters(1));
    let sources: [&dyn TriageLedger; 1] = [&fake];
    let one = begin(&fake, request(), 1).await.unwrap();
    let two = begin(&fake, request(), u32::MAX).await.unwrap();
    assert!(one.id < two.id && one.state == OperationState::Running, "{one:?}");
    assert_eq!((one.by.as_str(), one.note.as_deref()), ("anna@host", Some("smtp is back")));
    assert_eq!(one.filter, serde_json::json!({"task": ["send_*"]}));
    assert_eq!(operation(&fake, &one.id).await.unwrap().unwrap(), one);
    assert_eq!(operation(&fake, "nope").await.unwrap(), None);
    let all = operations(&sources, 10).await.unwrap();
    assert_eq!(all.iter().map(|op| &op.id).collect::<Vec<_>>(), [&two.id, &one.id]);
    assert_eq!(operations(&sources, 1).await.unwrap().len(), 1);

    fake.hands().moves = 3;
    let cancelled = cancel(&fake, &one.id, &anna()).await.unwrap().unwrap();
    assert_eq!(cancelled.state, OperationState::Cancelled);
    assert!(cancelled.ended_at.is_some());
    assert_eq!(cancel(&fake, &one.id, &anna()).await.unwrap().unwrap(), cancelled, "it has ended as it has ended");
    assert_eq!(cancel(&fake, "nope", &anna()).await.unwrap(), None);
    let notes = fake.hands().notes.clone();
    assert_eq!(notes, [("anna@host".to_owned(), "operation_cancelled".to_owned(), one.id)]);

    fake.hands().moves = 1_000;
    assert!(matches!(cancel(&fake, &two.id, &anna()).await, Err(Error::Contended(_))));
}

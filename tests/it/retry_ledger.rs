//! The retry loop's part of the ledger in a real Redis: the due index, the atomic retry, and what it refuses.

use sexton::ledger::{DuePools, GroupView, Whereabouts};

use crate::support::{
    graveyard::{dlq, letter},
    yard::{NS, QUEUE, Yard, place},
};

#[tokio::test]
async fn what_is_due_is_retried_and_leaves_the_dlq_and_the_index() {
    let mut yard = Yard::open().await;
    let fields = letter(NS, 1);
    let id = yard.bury(&fields).await;
    assert_eq!(yard.indexed().await, (1, 1));
    let DuePools { pools, next } = yard.ledger.due_pools(yard.generation, 10).await.unwrap();
    let standing = yard.ledger.standing(&[id.clone()]).await.unwrap();
    let letter = standing[0].as_ref().unwrap().letter.clone();
    let place = place(&letter);
    assert_eq!((pools, next), (vec![place.pool.clone()], None));
    let view = yard.ledger.pool(yard.generation, &place.pool, 10).await.unwrap();
    assert_eq!(view.groups, [GroupView { group: place.group.clone(), due: 1, learnt: None }]);
    let due = yard.ledger.due_entries(yard.generation, &place.pool, &[(place.group.clone(), 5)]).await.unwrap();
    assert_eq!(due, [vec![id.clone()]]);

    let flight = yard.send(&id).await;
    let queue = yard.stream(QUEUE).await;
    assert_eq!(flight.at, Whereabouts::Queue(queue[0].0.clone()));
    let mut expected: Vec<_> = fields.iter().filter(|(name, _)| !name.starts_with(b"dlq_")).cloned().collect();
    expected.iter_mut().filter(|(name, _)| name == b"attempt").for_each(|(_, value)| *value = b"0".to_vec());
    assert_eq!(queue[0].1, expected);
    assert!(yard.stream(&dlq(NS)).await.is_empty());
    assert_eq!(yard.indexed().await, (0, 0));
    assert_eq!(yard.ledger.flights().await.unwrap(), [flight]);
    assert_eq!(yard.audited().await, [("retried".to_owned(), id, letter.job_id)]);
}

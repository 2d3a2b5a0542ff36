//! stub
use crate::ledger::OutboxId;
/// stub
pub struct LaneState;
#[allow(missing_docs)]
impl LaneState {
    pub fn from_json(_: &str) -> Result<LaneState, ()> {
        Ok(LaneState)
    }
    pub fn position(&self) -> OutboxId {
        OutboxId { ms: u64::MAX, seq: 0 }
    }
}

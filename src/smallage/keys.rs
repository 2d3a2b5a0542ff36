//! stub
use crate::event::Lane;
/// stub
#[derive(Clone, Debug)]
pub struct Keys {
    ns: String,
}
#[allow(missing_docs)]
impl Keys {
    pub fn new(ns: &str) -> Keys {
        Keys { ns: ns.into() }
    }
    pub fn dlq(&self) -> String {
        format!("{{{}}}:dlq", self.ns)
    }
    pub fn lease(&self) -> String {
        format!("{{{}}}:sexton:lease", self.ns)
    }
    pub fn state(&self) -> String {
        format!("{{{}}}:sexton:state", self.ns)
    }
    pub fn outbox(&self, lane: Lane) -> String {
        format!("{{{}}}:sexton:outbox:{}", self.ns, lane.as_str())
    }
    pub fn hook(&self, hook: &str, lane: Lane) -> String {
        format!("{{{}}}:sexton:hook:{hook}:{}", self.ns, lane.as_str())
    }
    pub fn job(&self, id: &str) -> String {
        format!("{{{}}}:sexton:job:{id}", self.ns)
    }
}

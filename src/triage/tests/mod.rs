//! Triage against a ledger in memory.

//! The pod's end.

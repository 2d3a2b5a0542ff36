//! The `sexton` command.

fn main() {}

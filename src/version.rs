//! Which build this is: its version, and the revision of the sources that it was made from.

use std::sync::LazyLock;

/// The version, as in the changelog.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The revision: what `SEXTON_REVISION` was when this was built, if anything.
pub fn revision() -> Option<&'static str> {
    // A build argument that nobody gives is there all the same, and empty.
    option_env!("SEXTON_REVISION").filter(|revision| !revision.is_empty())
}

/// Both, for people: `0.1.0 (revision 1a2b3c4d5e6f)`.
pub fn with_revision() -> &'static str {
    static WRITTEN: LazyLock<String> = LazyLock::new(|| written(VERSION, revision()));
    &WRITTEN
}

fn written(version: &str, revision: Option<&str>) -> String {
    match revision {
        Some(revision) => format!("{version} (revision {revision})"),
        None => version.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_of_no_known_revision_tells_its_version_alone() {
        assert_eq!(written("1.2.3", Some("1a2b3c")), "1.2.3 (revision 1a2b3c)");
        assert_eq!(written("1.2.3", None), "1.2.3");
    }
}

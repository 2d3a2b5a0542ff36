//! Type and message of the exception that ended the last attempt.

/// Type and message of one failure; either may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ErrorInfo {
    /// The exception's type as the framework names it, module path included (`asyncpg.exceptions.PostgresError`).
    pub kind: String,
    /// The exception's message; may span lines.
    pub message: String,
}

impl std::fmt::Display for ErrorInfo {
    /// `Type: message`, or the one that is there.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.kind.is_empty(), self.message.is_empty()) {
            (false, false) => write!(f, "{}: {}", self.kind, self.message),
            (false, true) => f.write_str(&self.kind),
            _ => f.write_str(&self.message),
        }
    }
}

//! Type and message of the exception that ended the last attempt, read out of a framework's account of it.
//!
//! Knows Python tracebacks and plain text. Whether the account or the history is the better witness is decided in
//! `history`.

use std::borrow::Cow;

use super::group::normalise;

/// Characters of a message that are kept.
const MESSAGE_CHARS: usize = 2_000;
/// Bytes of an exception's type that are kept; a longer one is no type.
const KIND_BYTES: usize = 512;
/// smallage keeps the first so many bytes of a traceback.
const CUT_BYTES: usize = 8_192;
/// Sub-exceptions an exception group's message names.
const SUBS_NAMED: usize = 3;
/// Sub-exceptions looked at to find those that differ.
const SUBS_READ: usize = 64;
/// Characters of a sub-exception's message that are kept.
const SUB_CHARS: usize = 300;

const HEADER: &str = "Traceback (most recent call last):";
const GROUP_HEADER: &str = "Exception Group Traceback (most recent call last):";
const WHILE_HANDLING: &str = "During handling of the above exception, another exception occurred:";
const CAUSED_BY: &str = "The above exception was the direct cause of the following exception:";

/// Type and message of one failure; either may be empty.
///
/// The type is empty where no exception was reported at all (a job that outlived its owners, a task nobody knows): the
/// message then says what happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ErrorInfo {
    /// The exception's type as the framework names it, module path included (`asyncpg.exceptions.PostgresError`).
    pub kind: String,
    /// The exception's message; may span lines. Notes follow it, a line each. An exception group's is followed by up
    /// to three sub-exceptions that differ, `Type: message`, a line each in alphabetical order.
    pub message: String,
}

impl ErrorInfo {
    /// The type without its module path. Histories and tracebacks differ in whether they write the path.
    pub fn class_name(&self) -> &str {
        self.kind.rsplit('.').next().unwrap_or_default()
    }

    /// True if nothing is known.
    pub fn is_empty(&self) -> bool {
        self.kind.is_empty() && self.message.is_empty()
    }

    /// Reads `Type: message`, `Type:` or `Type`, where the caller knows that a type stands there.
    pub(super) fn from_line(text: &str) -> ErrorInfo {
        let first = text.lines().next().unwrap_or_default();
        let (kind, message) = match first.find(':') {
            Some(colon) if first[colon + 1..].is_empty() || first[colon + 1..].starts_with(' ') => {
                (&text[..colon], &text[colon + 1..])
            }
            _ => (first, &text[first.len()..]),
        };
        if is_type(kind) { ErrorInfo::bounded(kind, message) } else { ErrorInfo::bounded("", text) }
    }

    /// Reads text that may or may not begin with a type: only what looks like a class name is taken for one.
    pub(super) fn from_text(text: &str) -> ErrorInfo {
        let error = ErrorInfo::from_line(text);
        let capital = error.class_name().starts_with(char::is_uppercase);
        if capital && !error.message.is_empty() { error } else { ErrorInfo::bounded("", text) }
    }

    fn bounded(kind: &str, message: &str) -> ErrorInfo {
        ErrorInfo { kind: kind.to_owned(), message: first_chars(message.trim(), MESSAGE_CHARS).to_owned() }
    }
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

/// What a framework's account of the last failure tells about the exception.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The last exception it shows.
    pub error: ErrorInfo,
    /// False if the account ends before it is told, so that the exception that ended the attempt may be another: the
    /// one shown may be only its cause, and its message may go on.
    pub complete: bool,
}

impl Account {
    /// Reads a Python traceback, or text that is none.
    ///
    /// Of chained exceptions the last counts. Python ends a traceback with a newline, so one that ends otherwise was
    /// cut, and one of exactly 8,192 bytes may have been.
    pub fn read(detail: &[u8]) -> Account {
        let text = String::from_utf8_lossy(detail);
        let chain = Chain::split(&text);
        if !chain.is_traceback() {
            let text = text.trim();
            return Account { error: ErrorInfo::from_text(text), complete: !text.is_empty() };
        }
        let cut = detail.len() == CUT_BYTES || !detail.ends_with(b"\n");
        match chain.last.error(cut) {
            Some(error) => Account { error, complete: !cut },
            None => {
                Account { error: chain.cause.and_then(|cause| cause.error(false)).unwrap_or_default(), complete: false }
            }
        }
    }
}

/// The end of a chain of exceptions.
struct Chain<'a> {
    cause: Option<Link<'a>>,
    last: Link<'a>,
}

/// One exception of a chain, with its frames.
#[derive(Clone, Copy)]
struct Link<'a> {
    /// From the line after the header, or the whole where there is none.
    body: &'a str,
    headed: bool,
    group: bool,
}

impl<'a> Chain<'a> {
    fn split(text: &'a str) -> Chain<'a> {
        let mut chain =
            Chain { cause: None, last: Link { body: text, headed: false, group: text.starts_with("  | ") } };
        let mut at = 0;
        for line in text.split('\n') {
            let next = (at + line.len() + 1).min(text.len());
            if line == WHILE_HANDLING || line == CAUSED_BY {
                let told = chain.last.body.len() - (text.len() - at);
                chain.cause = Some(Link { body: &chain.last.body[..told], ..chain.last });
                let body = text[next..].trim_start_matches('\n');
                chain.last = Link { body, headed: false, group: body.starts_with("  | ") };
            } else if !chain.last.headed {
                let margin = line.strip_prefix("  + ");
                if line == HEADER || margin.unwrap_or(line) == GROUP_HEADER {
                    chain.last = Link { body: &text[next..], headed: true, group: margin.is_some() };
                }
            }
            at = next;
        }
        chain
    }

    fn is_traceback(&self) -> bool {
        self.last.headed || self.last.group || self.cause.is_some()
    }
}

impl Link<'_> {
    /// The exception it ends with, if it was told before the text ends.
    fn error(&self, cut: bool) -> Option<ErrorInfo> {
        if self.group {
            return exception_group(self.body);
        }
        let mut rest = self.body;
        if self.headed {
            // Frames, source lines and carets are indented; an empty line may stand inside a source excerpt.
            while rest.starts_with([' ', '\n']) {
                rest = &rest[rest.find('\n')? + 1..];
            }
        }
        let rest = if cut { rest.trim_end_matches('\u{fffd}') } else { rest };
        if cut && !rest.contains([':', '\n']) {
            // Perhaps only the beginning of a type.
            return (!rest.is_empty()).then(|| ErrorInfo::bounded("", rest));
        }
        Some(ErrorInfo::from_line(rest)).filter(|error| !error.is_empty())
    }
}

/// Reads an exception group: its own line, then what its sub-exceptions at the bottom of the tree were.
///
/// A task group's own message says nothing ("unhandled errors in a TaskGroup"), so the message names the first three
/// that differ. They are put in order because tasks fail in any order.
fn exception_group(body: &str) -> Option<ErrorInfo> {
    let mut group: Option<ErrorInfo> = None;
    let mut subs: Vec<(String, ErrorInfo)> = Vec::new();
    let mut part = String::new();
    for line in body.split('\n') {
        let line = line.trim_start_matches(' ');
        if let Some(content) = line.strip_prefix('|') {
            part.push_str(content.strip_prefix(' ').unwrap_or(content));
            part.push('\n');
        } else if line.starts_with("+-") {
            // "+-+--" opens the sub-exceptions of what has just been told, which thereby is a group itself.
            let nested = line.starts_with("+-+-");
            match (&group, part_error(&part)) {
                (None, told) => group = told,
                (Some(_), Some(sub)) if !nested && !sub.kind.is_empty() && subs.len() < SUBS_READ => {
                    let key = format!("{}: {}", sub.class_name(), normalise(&sub.message));
                    if subs.iter().all(|(known, _)| *known != key) {
                        subs.push((key, sub));
                    }
                }
                _ => {}
            }
            part.clear();
        }
    }
    // Without a divider the text ends inside the group's own line, or it has been cut before the first sub-exception.
    let mut group = group.or_else(|| part_error(&part))?;
    subs.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (_, sub) in subs.into_iter().take(SUBS_NAMED) {
        group.message.push('\n');
        group.message.push_str(&sub.kind);
        let line = sub.message.lines().next().unwrap_or_default();
        if !line.is_empty() {
            group.message.push_str(": ");
            group.message.push_str(first_chars(line, SUB_CHARS));
        }
    }
    Some(ErrorInfo::bounded(&group.kind, &group.message))
}

/// The exception a part of a group's drawing ends with, margins taken off.
fn part_error(part: &str) -> Option<ErrorInfo> {
    let mut link = Chain::split(part).last;
    // A group inside a group has its drawing where the margins were; what is left reads like any other link, with the
    // frames indented.
    link.group = false;
    link.headed = link.headed || part.starts_with("  ");
    link.error(false)
}

/// True for a dotted path of names, as Python writes types: `KeyError`, `app.tasks.run.<locals>.Refused`.
fn is_type(text: &str) -> bool {
    text.len() <= KIND_BYTES
        && text.split('.').all(|name| {
            let name = name.strip_prefix('<').and_then(|name| name.strip_suffix('>')).unwrap_or(name);
            name.starts_with(|c: char| c.is_alphabetic() || c == '_')
                && name.chars().all(|c| c.is_alphanumeric() || c == '_')
        })
}

/// The first `max` characters.
pub(super) fn first_chars(text: &str, max: usize) -> &str {
    if text.len() <= max {
        return text;
    }
    text.char_indices().nth(max).map_or(text, |(end, _)| &text[..end])
}

/// Bytes as text of at most `max` characters, lossily where they are not UTF-8; `…` stands where more was.
pub(crate) fn bounded_text(bytes: &[u8], max: usize) -> String {
    // No character takes more than four bytes, so nothing beyond is looked at.
    let looked_at = &bytes[..bytes.len().min(max.saturating_mul(4).saturating_add(4))];
    let text: Cow<'_, str> = String::from_utf8_lossy(looked_at);
    let shown = first_chars(&text, max);
    if shown.len() == text.len() && looked_at.len() == bytes.len() {
        return text.into_owned();
    }
    format!("{}…", first_chars(shown, max.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(name: &str, detail: &str, kind: &str, message: &str, complete: bool) {
        let expected = Account { error: ErrorInfo { kind: kind.to_owned(), message: message.to_owned() }, complete };
        assert_eq!(Account::read(detail.as_bytes()), expected, "{name}");
    }

    const FRAMES: &str = "Traceback (most recent call last):\n  File \"/srv/app/tasks.py\", line 57, in run\n    \
                          call(x)\n    ~~~~^^^\n";

    #[test]
    fn a_tracebacks_last_exception_is_read() {
        for (name, tail, kind, message) in [
            ("plain", "ValueError: order 3 has no line items\n", "ValueError", "order 3 has no line items"),
            ("no message", "TimeoutError\n", "TimeoutError", ""),
            ("empty message", "TimeoutError: \n", "TimeoutError", ""),
            ("module path", "asyncpg.exceptions.PostgresError: no\n", "asyncpg.exceptions.PostgresError", "no"),
            ("local class", "run.<locals>.Refused: x: y\n", "run.<locals>.Refused", "x: y"),
            ("small letters", "socket.gaierror: [Errno -2] unknown\n", "socket.gaierror", "[Errno -2] unknown"),
            ("several lines", "app.Bad: one\n  two\n\nthree\n", "app.Bad", "one\n  two\n\nthree"),
            ("notes", "ValueError: bad\nnote one\nnote\ntwo\n", "ValueError", "bad\nnote one\nnote\ntwo"),
            (
                "message after the line",
                "RemoteTraceback: \n\"\"\"\nx\n\"\"\"\n",
                "RemoteTraceback",
                "\"\"\"\nx\n\"\"\"",
            ),
            ("no type at all", "something odd: happened\n", "", "something odd: happened"),
            ("URL", "Refused: https://a.test:1/x\n", "Refused", "https://a.test:1/x"),
            ("source excerpt with an empty line", "    run(\"\"\"\n\n    \"\"\")\nKeyError: 'a'\n", "KeyError", "'a'"),
            (
                "syntax error",
                "  File \"<cfg>\", line 1\n    x = = 1\n        ^\nSyntaxError: bad\n",
                "SyntaxError",
                "bad",
            ),
        ] {
            check(name, &format!("{FRAMES}{tail}"), kind, message, true);
        }
    }

    #[test]
    fn of_a_chain_the_last_counts_and_a_quoted_traceback_is_no_link() {
        for link in [WHILE_HANDLING, CAUSED_BY] {
            let chain = format!("{FRAMES}KeyError: 'a'\n\n{link}\n\n{FRAMES}app.Down: b\nc\n");
            check("chain", &chain, "app.Down", "b\nc", true);
            let three = format!("{chain}\n{link}\n\n{FRAMES}OSError: d\n");
            check("three", &three, "OSError", "d", true);
            let bare = format!("KeyError: 'a'\n\n{link}\n\n{FRAMES}OSError: d\n");
            check("cause never raised", &bare, "OSError", "d", true);
        }
        let quoted = format!("{FRAMES}ChildFailed: worker said:\n{FRAMES}ValueError: inner\n");
        let expected = format!("worker said:\n{FRAMES}ValueError: inner");
        check("quoted", &quoted, "ChildFailed", &expected, true);
        let introduced = format!("task failed, see below\n{FRAMES}ValueError: inner\n");
        check("introduced", &introduced, "ValueError", "inner", true);
    }

    #[test]
    fn what_the_cut_took_is_not_made_up() {
        let chain = format!("{FRAMES}KeyError: 'a'\n\n{CAUSED_BY}\n\n{FRAMES}");
        for (name, detail, kind, message) in [
            ("in the message", format!("{FRAMES}ValueError: the bottom, aft"), "ValueError", "the bottom, aft"),
            ("in the type", format!("{FRAMES}ValueEr"), "", "ValueEr"),
            ("in the frames", FRAMES.to_owned(), "", ""),
            ("in the header", "Traceback (most recent call last):".to_owned(), "", ""),
            ("in the frames, its cause is told", chain.clone(), "KeyError", "'a'"),
            ("before the second header", format!("{FRAMES}KeyError: 'a'\n\n{CAUSED_BY}\n"), "KeyError", "'a'"),
        ] {
            check(name, &detail, kind, message, false);
        }
        let mut in_a_character = format!("{FRAMES}ValueError: caf").into_bytes();
        in_a_character.push(0xc3);
        let account = Account::read(&in_a_character);
        assert_eq!((account.error.message.as_str(), account.complete), ("caf", false));
        // Cut right after a line's end, which nothing but the length shows.
        let mut at_a_line = format!("{FRAMES}ValueError: ");
        at_a_line.push_str(&"x".repeat(CUT_BYTES - at_a_line.len() - 1));
        at_a_line.push('\n');
        assert!(!Account::read(at_a_line.as_bytes()).complete);
    }

    #[test]
    fn an_exception_group_names_what_differs_below_it() {
        let nested = "  + Exception Group Traceback (most recent call last):
  |   File \"/srv/app/tasks.py\", line 15, in nested
  |     raise ExceptionGroup('outer', [x])
  | ExceptionGroup: outer (4 sub-exceptions)
  +-+---------------- 1 ----------------
    | app.Errors: inner (2 sub-exceptions)
    +-+---------------- 1 ----------------
      | Traceback (most recent call last):
      |   File \"/srv/app/tasks.py\", line 8, in mk
      |     try: raise t(*a)
      |          ^^^^^^^^^^^
      | TimeoutError: db 1 timed out
      +---------------- 2 ----------------
      | Traceback (most recent call last):
      |   File \"/srv/app/tasks.py\", line 8, in mk
      | TimeoutError: db 2 timed out
      +------------------------------------
    +---------------- 2 ----------------
    | Traceback (most recent call last):
    |   File \"/srv/app/tasks.py\", line 11, in nested
    |     {}['a']
    | KeyError: 'a'
    | 
    | During handling of the above exception, another exception occurred:
    | 
    | Traceback (most recent call last):
    |   File \"/srv/app/tasks.py\", line 13, in nested
    | ValueError: bad
    | worse
    +---------------- 3 ----------------
    | TypeError: never raised
    +---------------- ... ----------------
    | and 1 more exception
    +------------------------------------
";
        let message =
            "outer (4 sub-exceptions)\nTimeoutError: db 1 timed out\nTypeError: never raised\nValueError: bad";
        check("nested", nested, "ExceptionGroup", message, true);

        let after = format!("{nested}\n{WHILE_HANDLING}\n\n{FRAMES}RuntimeError: after\n");
        check("the group is a cause", &after, "RuntimeError", "after", true);
        let before = format!("{FRAMES}KeyError: 'x'\n\n{WHILE_HANDLING}\n\n{nested}");
        check("the group has a cause", &before, "ExceptionGroup", message, true);

        let (untold, _) = nested.split_once("    | During").unwrap();
        let message = "outer (4 sub-exceptions)\nTimeoutError: db 1 timed out";
        check("cut among the sub-exceptions", untold.trim_end(), "ExceptionGroup", message, false);
        let headless = "  | ExceptionGroup: first (1 sub-exception)
  +-+---------------- 1 ----------------
    | ValueError: 1
    +------------------------------------
";
        check("never raised", headless, "ExceptionGroup", "first (1 sub-exception)\nValueError: 1", true);
    }

    #[test]
    fn other_text_is_its_own_message() {
        for (text, kind, message) in [
            ("delivered 4 times", "", "delivered 4 times"),
            ("gone_task", "", "gone_task"),
            ("Gone", "", "Gone"),
            ("ConnectionError: refused", "ConnectionError", "refused"),
            ("app.errors.Refused: no", "app.errors.Refused", "no"),
            ("error: refused", "", "error: refused"),
            ("  two words: x\n", "", "two words: x"),
            (": x", "", ": x"),
        ] {
            check("text", text, kind, message, true);
        }
        check("nothing", "", "", "", false);
        check("blank", " \n ", "", "", false);
    }

    #[test]
    fn texts_are_bounded() {
        let long = format!("{FRAMES}ValueError: {}\n", "é".repeat(9_000));
        assert_eq!(Account::read(long.as_bytes()).error.message.chars().count(), MESSAGE_CHARS);
        let long = format!("{FRAMES}{}: x\n", "E".repeat(9_000));
        assert_eq!(Account::read(long.as_bytes()).error.kind, "");
        for (bytes, max, expected) in [
            (&b"abc"[..], 3, "abc"),
            (b"abcd", 3, "ab…"),
            (b"", 3, ""),
            (b"\xff\xfe", 3, "\u{fffd}\u{fffd}"),
            ("éééé".as_bytes(), 4, "éééé"),
            ("ééééé".as_bytes(), 4, "ééé…"),
        ] {
            assert_eq!(bounded_text(bytes, max), expected);
        }
        assert_eq!(bounded_text(&vec![0xff; 1 << 20], 10), format!("{}…", "\u{fffd}".repeat(9)));
    }

    /// Pieces that tracebacks are made of, and some that they are not.
    fn pieces() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just(HEADER.to_owned()),
            Just(format!("  + {GROUP_HEADER}")),
            Just(GROUP_HEADER.to_owned()),
            Just(WHILE_HANDLING.to_owned()),
            Just(CAUSED_BY.to_owned()),
            Just("\n".to_owned()),
            Just("  | ".to_owned()),
            Just("    | ".to_owned()),
            Just("  +-+---------------- 1 ----------------\n".to_owned()),
            Just("    +------------------------------------\n".to_owned()),
            Just("ValueError: x".to_owned()),
            Just("  File \"x\"".to_owned()),
            any::<String>(),
        ];
        prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn reading_never_fails(text in pieces(), bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0usize..400) {
            Account::read(&bytes);
            let text = text.as_bytes();
            Account::read(text);
            Account::read(&text[..cut.min(text.len())]);
        }

        #[test]
        fn a_traceback_is_read_whatever_the_message_says(message in "[^\n]{1,80}") {
            let message = message.trim();
            prop_assume!(!message.is_empty());
            let account = Account::read(format!("{FRAMES}app.Bad: {message}\n").as_bytes());
            let error = ErrorInfo { kind: "app.Bad".to_owned(), message: message.to_owned() };
            prop_assert_eq!(account, Account { error, complete: true });
        }
    }
}

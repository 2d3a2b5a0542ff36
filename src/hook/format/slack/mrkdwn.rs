//! Slack's markup: blocks, and texts that are escaped and cut for them.

use serde_json::{Value, json};

use super::super::words;
use crate::{event::ErrorText, letter::written_out};

/// Slack's limit for the text of a section, less some room for what stands around a text.
pub(super) const SECTION: usize = 2_900;
/// Of a notification's line, and of an error in a list.
pub(super) const LINE: usize = 300;
/// Of a name.
pub(super) const NAME: usize = 100;
/// A tab in a code block.
const TAB: &str = "    ";

pub(super) fn section(mrkdwn: &str) -> Value {
    json!({"type": "section", "text": {"type": "mrkdwn", "text": mrkdwn, "verbatim": true}})
}

pub(super) fn context(mrkdwn: &str) -> Value {
    json!({"type": "context", "elements": [{"type": "mrkdwn", "text": mrkdwn, "verbatim": true}]})
}

pub(super) fn name(value: Option<&str>, otherwise: &str) -> String {
    text(value.filter(|value| !value.is_empty()).unwrap_or(otherwise), NAME)
}

/// An error in one line.
pub(super) fn error_line(error: &ErrorText, most: usize) -> String {
    text(&words::error_line(error), most)
}

/// A block that keeps its lines.
pub(super) fn code(raw: &str, most: usize) -> String {
    // What would close the block early is shown with other marks.
    format!("```{}```", escaped(&raw.replace("```", "'''"), most, true))
}

/// A text in a line of mrkdwn, at most `most` bytes long with its escapes.
pub(super) fn text(raw: &str, most: usize) -> String {
    escaped(raw, most, false)
}

/// A text for mrkdwn, with its line breaks and tabs if it is a `block`; at most `most` bytes long with the escapes, none
/// of them cut in two.
fn escaped(raw: &str, most: usize, block: bool) -> String {
    let mut escaped = String::with_capacity(raw.len().min(most));
    for c in raw.chars() {
        let (mut buffer, written);
        let piece = match c {
            '&' => "&amp;",
            '<' => "&lt;",
            '>' => "&gt;",
            '\n' if block => "\n",
            '\t' if block => TAB,
            c => match written_out(c) {
                Some(text) => {
                    written = text;
                    written.as_str()
                }
                None => {
                    buffer = [0; 4];
                    c.encode_utf8(&mut buffer)
                }
            },
        };
        if escaped.len() + piece.len() + '…'.len_utf8() > most {
            escaped.push('…');
            break;
        }
        escaped.push_str(piece);
    }
    escaped
}

pub(super) fn last_chars(text: &str, chars: usize) -> &str {
    text.char_indices().nth_back(chars.saturating_sub(1)).map_or(text, |(at, _)| &text[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_hide_or_turn_a_text_is_written_out() {
        for (raw, line, block) in [
            ("a\u{202e}b\u{2066}c", "a\\u{202e}b\\u{2066}c", "a\\u{202e}b\\u{2066}c"),
            ("a\u{200b}\u{2028}b", "a\\u{200b}\\u{2028}b", "a\\u{200b}\\u{2028}b"),
            ("a\0\x1b[2J\u{85}", "a\\x00\\x1b[2J\\x85", "a\\x00\\x1b[2J\\x85"),
            ("a\n\tb\r", "a\\n\\tb\\r", "a\n    b\\r"),
            ("1 < 2 & ünï", "1 &lt; 2 &amp; ünï", "1 &lt; 2 &amp; ünï"),
        ] {
            assert_eq!(text(raw, LINE), line);
            assert_eq!(code(raw, LINE), format!("```{block}```"));
        }
        assert_eq!(text("ab\u{202e}", 9), "ab…", "no escape is cut in two");
    }
}

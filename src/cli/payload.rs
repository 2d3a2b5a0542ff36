//! A payload as a person can read it: JSON and MessagePack laid out, text as it is, anything else as bytes.

use std::fmt::Write as _;

use super::text::{block, count};
use crate::triage::{Form, decode};

/// Bytes of a text that are shown.
const LONGEST_TEXT: usize = 64 * 1024;
/// Bytes shown one by one.
const LONGEST_BYTES: usize = 4 * 1024;
/// JSON nested deeper is shown as it was written.
const DEEPEST: usize = 64;
/// Bytes in one line of the byte view.
const BYTES_A_LINE: usize = 16;

/// A form in words.
pub(super) fn name(form: Form) -> &'static str {
    match form {
        Form::Empty => "empty",
        Form::Json => "JSON",
        Form::Msgpack => "MessagePack, as JSON",
        Form::Text => "text",
        Form::Bytes => "bytes",
    }
}

/// The payload's form, and an indented block that shows it, harmless and ending with a line break.
pub(super) fn shown(payload: &[u8]) -> (Form, String) {
    let (form, text) = decode(payload);
    let block = match (form, text) {
        (Form::Json | Form::Msgpack, Some(json)) => shown_text(&laid_out(&json)),
        (_, Some(text)) => shown_text(&text),
        (Form::Empty, None) => String::new(),
        (_, None) => shown_bytes(payload),
    };
    (form, block)
}

/// Text as an indented harmless block; a very long one is cut, and says so.
pub(super) fn shown_text(text: &str) -> String {
    if text.len() <= LONGEST_TEXT {
        return block(text);
    }
    let end = (0..=LONGEST_TEXT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}  … {} bytes more; -o json shows all\n", block(&text[..end]), count((text.len() - end) as u64))
}

/// Lays a valid JSON document out. Works on the text, so that numbers, escapes and the order of names stay as written.
fn laid_out(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    let mut chars = json.trim().chars().peekable();
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    while let Some(c) = chars.next() {
        if in_text {
            out.push(c);
            in_text = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            ' ' | '\t' | '\n' | '\r' => {}
            '{' | '[' => {
                out.push(c);
                while chars.next_if(char::is_ascii_whitespace).is_some() {}
                if let Some(end) = chars.next_if(|next| matches!(next, '}' | ']')) {
                    out.push(end);
                    continue;
                }
                depth += 1;
                if depth > DEEPEST {
                    return json.to_owned();
                }
                line(&mut out, depth);
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c => {
                in_text = c == '"';
                out.push(c);
            }
        }
    }
    out
}

fn shown_bytes(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(LONGEST_BYTES)];
    let mut out = String::with_capacity(shown.len() * 5);
    for (number, line) in shown.chunks(BYTES_A_LINE).enumerate() {
        // Formatting into a string does not fail.
        let _ = write!(out, "  {:08x} ", number * BYTES_A_LINE);
        for at in 0..BYTES_A_LINE {
            if at == BYTES_A_LINE / 2 {
                out.push(' ');
            }
            match line.get(at) {
                Some(byte) => drop(write!(out, " {byte:02x}")),
                None => out.push_str("   "),
            }
        }
        let printable = |byte: &u8| if matches!(byte, 0x20..=0x7e) { char::from(*byte) } else { '.' };
        let _ = writeln!(out, "  |{}|", line.iter().map(printable).collect::<String>());
    }
    if bytes.len() > shown.len() {
        let _ = writeln!(out, "  … {} bytes more; -o json shows all", count((bytes.len() - shown.len()) as u64));
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::letter::is_harmful;

    #[test]
    fn a_payload_is_shown_as_what_it_is() {
        for (payload, form, expected) in [
            (&b""[..], Form::Empty, ""),
            (b"{}", Form::Json, "  {}\n"),
            (
                br#" {"i": 1.10, "to":["a,b:{", {} ,[ ]],"big":123456789012345678901234567890}"#,
                Form::Json,
                "  {\n    \"i\": 1.10,\n    \"to\": [\n      \"a,b:{\",\n      {},\n      []\n    ],\n    \"big\": 123456789012345678901234567890\n  }\n",
            ),
            (br#"{"q":"\"}\\","n":null}"#, Form::Json, "  {\n    \"q\": \"\\\"}\\\\\",\n    \"n\": null\n  }\n"),
            ("{\"x\":\"\u{202e}\u{9b}\"}".as_bytes(), Form::Json, "  {\n    \"x\": \"\\u{202e}\\x9b\"\n  }\n"),
            ("größe\nzwei".as_bytes(), Form::Text, "  größe\n  zwei\n"),
            (b"{\"i\":", Form::Text, "  {\"i\":\n"),
            (b"\x82\xa1i\x01\xa1x\xa1\x1b", Form::Msgpack, "  {\n    \"i\": 1,\n    \"x\": \"\\u001b\"\n  }\n"),
            (b"\x82\xa1a\x1b", Form::Bytes, "  00000000  82 a1 61 1b                                       |..a.|\n"),
            (
                b"0123456789abcdef\x00",
                Form::Bytes,
                "  00000000  30 31 32 33 34 35 36 37  38 39 61 62 63 64 65 66  |0123456789abcdef|\n  \
                 00000010  00                                                |.|\n",
            ),
        ] {
            assert_eq!(shown(payload), (form, expected.to_owned()), "{payload:?}");
        }
    }

    #[test]
    fn very_long_and_very_deep_payloads_are_bounded() {
        let (form, text) = shown(&vec![b'a'; 1_000_000]);
        assert_eq!(form, Form::Text);
        assert!(text.len() < 70_000 && text.ends_with("  … 934,464 bytes more; -o json shows all\n"));
        let (form, text) = shown(&vec![0xff; 1_000_000]);
        assert_eq!(form, Form::Bytes);
        assert!(text.len() < 25_000 && text.ends_with("  … 995,904 bytes more; -o json shows all\n"));
        let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
        assert!(shown(deep.as_bytes()).1.len() < 200_000);
    }

    proptest! {
        #[test]
        fn nothing_harmful_is_shown(payload in any::<Vec<u8>>()) {
            prop_assert!(!shown(&payload).1.chars().any(|c| c != '\n' && is_harmful(c)));
        }

        #[test]
        fn laying_out_changes_white_space_only(keys in prop::collection::btree_map(".*", any::<Option<f64>>(), 0..6)) {
            let json = serde_json::to_string(&keys).unwrap();
            let laid_out: serde_json::Value = serde_json::from_str(&laid_out(&json)).unwrap();
            prop_assert_eq!(laid_out, serde_json::from_str::<serde_json::Value>(&json).unwrap());
        }
    }
}

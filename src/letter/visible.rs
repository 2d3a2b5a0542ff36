//! Which characters of a record may be shown to a person as they are, and how the others are written out.
//!
//! For terminals and chat messages, where a text must not move the cursor, hide, or turn its direction. Not for JSON,
//! whose values stay exact.

/// How `c` is written out (`\n`, `\x1b`, `\u{202e}`), if it is not to be shown as it is ([`is_harmful`]).
pub fn written_out(c: char) -> Option<String> {
    match c {
        '\n' => Some("\\n".to_owned()),
        '\r' => Some("\\r".to_owned()),
        '\t' => Some("\\t".to_owned()),
        c if !is_harmful(c) => None,
        c if (c as u32) < 0x100 => Some(format!("\\x{:02x}", c as u32)),
        c => Some(format!("\\u{{{:x}}}", c as u32)),
    }
}

/// True for what a screen would act on or not show: control characters (C0, DEL, C1), marks and overrides of direction,
/// zero-width and other invisible characters, line separators, tags.
pub fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180e}'
                | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
                | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_act_or_hide_is_written_out_and_nothing_else() {
        for (text, expected) in [
            ("plain text, ünïcode 日本 🙂 C:\\temp", "plain text, ünïcode 日本 🙂 C:\\temp"),
            ("\x1b\x07\0\x7f\u{85}\u{9b}", "\\x1b\\x07\\x00\\x7f\\x85\\x9b"),
            ("a\rb\nc\td", "a\\rb\\nc\\td"),
            ("\u{2028}\u{2029}", "\\u{2028}\\u{2029}"),
            (
                "\u{202a}\u{202e}\u{2066}\u{2069}\u{200e}\u{61c}",
                "\\u{202a}\\u{202e}\\u{2066}\\u{2069}\\u{200e}\\u{61c}",
            ),
            ("\u{200b}\u{200d}\u{2060}\u{feff}\u{ad}", "\\u{200b}\\u{200d}\\u{2060}\\u{feff}\\xad"),
        ] {
            let shown: String = text.chars().map(|c| written_out(c).unwrap_or_else(|| c.to_string())).collect();
            assert_eq!(shown, expected);
        }
    }
}

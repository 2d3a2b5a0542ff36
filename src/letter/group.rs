//! The fingerprint that puts dead letters of one kind together.
//!
//! [`Group::of`] and [`normalise`] are a contract: groups are stored, muted, compared with last week's and written into
//! rules, so the same letter must have the same group in every release and on every host. Golden tests pin it.

use sha2::{Digest as _, Sha256};

use super::ErrorInfo;

/// Bytes of a message that are looked at.
const READ_BYTES: usize = 2_000;
/// Bytes of a normalised message that count.
const KEPT_BYTES: usize = 400;
/// What stands for everything that does not tell groups apart.
const ANY: char = '*';

/// Twelve lower-case hexadecimal digits; stable across releases and hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Group(pub String);

impl Group {
    /// How many hexadecimal digits it has.
    pub const DIGITS: usize = 12;

    /// Whether a text can be one.
    pub fn is_one(text: &str) -> bool {
        text.len() == Group::DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    }

    /// The group of a task's failure: the first 12 hexadecimal digits of
    /// `SHA-256(task, 0x00, type, 0x00, normalised message)`, all in UTF-8.
    ///
    /// The type counts without its module path, since a history names it without and a traceback with, and since
    /// modules move between releases.
    pub fn of(task: &str, error: &ErrorInfo) -> Group {
        let mut hash = Sha256::new();
        hash.update(task);
        hash.update([0]);
        hash.update(error.class_name());
        hash.update([0]);
        hash.update(normalise(&error.message));
        let digest = hash.finalize();
        Group(hex(&digest[..Group::DIGITS / 2]))
    }
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// A message without what differs from one failure of a kind to the next.
///
/// One pass over the message's first 2,000 bytes. *Word characters* are ASCII letters and digits, `_`, and everything
/// beyond ASCII. A *boundary* is the beginning of the result, or one of space and ``( [ { < = , : ; | " ' ` `` at its
/// end. At each place the first rule that fits is applied:
///
/// 1. White space and control characters become one space; none at either end.
/// 2. A quoted value becomes `*`. It begins with `'`, `"`, `` ` ``, `“`, `‘` or `«` after anything but a word character
///    or `*`, or after a Python prefix such as `b`, and ends at the next matching quote that is not followed by a word
///    character or `*`. Without an end it runs to the end if the message is longer than what is looked at; else its
///    quote is an ordinary character.
/// 3. At a boundary, a path becomes `*`: `./`, `../`, `~/`, `C:\`, `C:/`, `\\` before a word character, `/` before a word
///    character, `.`, `~` or `-`; up to white space, a quote, `*`, `<` or `>`, without trailing punctuation.
/// 4. At a boundary other than `:`, an IPv6 or MAC address or a time of day becomes `*`: hexadecimal digits, `.` and at
///    least two `:`, with a digit, or at least five `:`; not before a word character, `*`, or a sign and a digit.
/// 5. A sign at a boundary before a digit is dropped.
/// 6. A run is taken: word characters, joined by `-`, `.` and `+`, and by `:`, `,` and `/` between digits if it begins
///    with a digit. It becomes
///    - `scheme://*` if `://` follows: the URL goes up to where a path would;
///    - `*` if `@` and a word character follow: an e-mail address;
///    - `*` if `:` and one to five digits follow: host and port;
///    - `*` if it holds a digit, or is eight or more hexadecimal digits, or a month's or weekday's name of three
///      letters (`Jan`, `Mon`): numbers, ids, times, versions;
///    - else itself.
/// 7. Any other character is itself.
///
/// A `*` that would follow another `*`, or follow one with only spaces, `,` and `;` between, is one with it: lists of
/// any length are alike. The first 400 bytes of the result count (whole characters, no space at the end).
///
/// A host name without port and digit stays: nothing tells it from a module's name.
pub fn normalise(message: &str) -> String {
    normalise_start(message, message.len() > READ_BYTES)
}

/// [`normalise`] for a message of which only the start may be there: `cut` says so.
pub(super) fn normalise_start(message: &str, cut: bool) -> String {
    let mut end = message.len().min(READ_BYTES);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    let mut scan = Scan { text: &message[..end], at: 0, cut, out: String::with_capacity(128), open: [false; 6] };
    while scan.at < end && scan.out.len() < KEPT_BYTES {
        scan.step();
    }
    let mut out = scan.out;
    let mut kept = out.len().min(KEPT_BYTES);
    while !out.is_char_boundary(kept) {
        kept -= 1;
    }
    out.truncate(kept);
    out.truncate(out.trim_end_matches(' ').len());
    out
}

/// Opening and closing quotes.
const QUOTES: [(char, char); 6] = [('\'', '\''), ('"', '"'), ('`', '`'), ('“', '”'), ('‘', '’'), ('«', '»')];

/// Names that stand in dates.
const DATE_NAMES: [&str; 19] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Mon", "Tue", "Wed", "Thu",
    "Fri", "Sat", "Sun",
];

struct Scan<'a> {
    text: &'a str,
    at: usize,
    cut: bool,
    out: String,
    /// Quotes of this kind are known to have no end from here on.
    open: [bool; QUOTES.len()],
}

impl Scan<'_> {
    fn step(&mut self) {
        let byte = self.byte(self.at);
        match byte {
            0..=b' ' | 0x7f => {
                if !self.out.is_empty() && !self.out.ends_with(' ') {
                    self.out.push(' ');
                }
                self.at += 1;
            }
            b'*' => self.any_until(self.at + 1),
            b'\'' | b'"' | b'`' if self.quote() => {}
            0xc2 | 0xe2 if self.quote() => {}
            b'/' | b'.' | b'~' | b'\\' if self.path_starts() => self.any_until(self.address_end(self.at)),
            b':' if self.colons() => {}
            b'-' | b'+' if self.byte(self.at + 1).is_ascii_digit() && self.at_boundary() => self.at += 1,
            _ if is_word(byte) => {
                if !self.colons() {
                    self.run();
                }
            }
            _ => {
                self.out.push(char::from(byte));
                self.at += 1;
            }
        }
    }

    /// The byte at a place; 0 beyond the end.
    fn byte(&self, at: usize) -> u8 {
        self.text.as_bytes().get(at).copied().unwrap_or(0)
    }

    fn at_boundary(&self) -> bool {
        self.out.as_bytes().last().is_none_or(|last| b" ([{<=,:;|\"'`".contains(last))
    }

    /// Writes `*` and goes on at `end`.
    fn any_until(&mut self, end: usize) {
        let told = self.out.trim_end_matches([' ', ',', ';']);
        if told.ends_with(ANY) {
            self.out.truncate(told.len());
        } else {
            self.out.push(ANY);
        }
        self.at = end;
    }

    /// Takes a quoted value that begins here; false if none does.
    fn quote(&mut self) -> bool {
        let after_word = self.out.as_bytes().last().is_some_and(|&last| is_word(last) || last == b'*');
        if after_word {
            return false;
        }
        self.quoted_end(self.at).map(|end| self.any_until(end)).is_some()
    }

    /// Where the quoted value ends that begins at `at`.
    fn quoted_end(&mut self, at: usize) -> Option<usize> {
        let opening = self.text[at..].chars().next()?;
        let kind = QUOTES.iter().position(|(open, _)| *open == opening)?;
        if self.open[kind] {
            return None;
        }
        let closing = QUOTES[kind].1;
        let from = at + opening.len_utf8();
        let end = self.text[from..].match_indices(closing).map(|(n, quote)| from + n + quote.len()).find(|&end| {
            let next = self.byte(end);
            !is_word(next) && next != b'*'
        });
        if end.is_none() {
            if self.cut {
                return Some(self.text.len());
            }
            self.open[kind] = true;
        }
        end
    }

    fn path_starts(&self) -> bool {
        if !self.at_boundary() {
            return false;
        }
        let rest = &self.text.as_bytes()[self.at..];
        match rest {
            [b'/', next, ..] => is_word(*next) || matches!(next, b'.' | b'~' | b'-'),
            [b'\\', b'\\', next, ..] => is_word(*next),
            _ => rest.starts_with(b"./") || rest.starts_with(b"../") || rest.starts_with(b"~/"),
        }
    }

    /// Where a path or URL ends that reaches at least to `from`.
    fn address_end(&self, from: usize) -> usize {
        let rest = &self.text.as_bytes()[from..];
        let len = rest.iter().position(|b| b.is_ascii_whitespace() || b.is_ascii_control() || b"\"'`<>*".contains(b));
        let rest = &rest[..len.unwrap_or(rest.len())];
        let trailing = rest.iter().rev().take_while(|b| b")]},.;:!?".contains(b)).count();
        from + rest.len() - trailing
    }

    /// Takes an IPv6 or MAC address or a time of day; false if none begins here.
    fn colons(&mut self) -> bool {
        let first = self.byte(self.at);
        if !(first.is_ascii_hexdigit() || first == b':') || !self.at_boundary() || self.out.ends_with(':') {
            return false;
        }
        let rest = &self.text.as_bytes()[self.at..];
        let len = rest.iter().position(|b| !(b.is_ascii_hexdigit() || matches!(b, b':' | b'.'))).unwrap_or(rest.len());
        let next = self.byte(self.at + len);
        // With an offset from UTC a time of day is one number.
        let offset = matches!(next, b'-' | b'+') && self.byte(self.at + len + 1).is_ascii_digit();
        if is_word(next) || next == b'*' || offset {
            return false;
        }
        let mut run = &rest[..len];
        while let [shorter @ .., b'.'] | [shorter @ .., b':'] = run {
            run = shorter;
        }
        let colons = run.iter().filter(|b| **b == b':').count();
        let digit = run.iter().any(u8::is_ascii_digit);
        let found = colons >= 5 || colons >= 2 && digit;
        if found {
            self.any_until(self.at + run.len());
        }
        found
    }

    /// Takes a run of word characters and what belongs to it.
    fn run(&mut self) {
        let start = self.at;
        let numeric = self.byte(start).is_ascii_digit();
        let (mut end, mut digit) = (start, false);
        loop {
            let byte = self.byte(end);
            let joins = match byte {
                b'-' | b'.' | b'+' => is_word(self.byte(end + 1)),
                b':' | b',' | b'/' => numeric && self.byte(end + 1).is_ascii_digit(),
                _ => is_word(byte),
            };
            if !joins {
                break;
            }
            digit |= byte.is_ascii_digit();
            end += 1;
        }
        let text = self.text;
        let run = &text[start..end];
        let rest = &text.as_bytes()[end..];
        match rest {
            [b':', b'/', b'/', ..] if !numeric => {
                self.out.push_str(run);
                self.out.push_str("://");
                self.any_until(self.address_end(end + 3));
            }
            [b':', b'/' | b'\\', ..] if run.len() == 1 && self.at_boundary() => {
                self.any_until(self.address_end(end + 2));
            }
            [b'@', next, ..] if is_word(*next) => {
                let len = rest[1..].iter().position(|b| !(is_word(*b) || matches!(b, b'.' | b'-')));
                self.any_until(end + len.map_or(rest.len(), |len| len + 1));
            }
            [b':', port @ ..] if port_len(port).is_some() => {
                self.any_until(end + 1 + port_len(port).unwrap_or_default());
            }
            [b'\'' | b'"', ..] if is_prefix(run) => match self.quoted_end(end) {
                Some(quoted) => self.any_until(quoted),
                None => self.keep(run),
            },
            _ if digit || is_hex(run) || DATE_NAMES.contains(&run) => self.any_until(end),
            _ => self.keep(run),
        }
    }

    fn keep(&mut self, run: &str) {
        self.out.push_str(run);
        self.at += run.len();
    }
}

fn is_hex(run: &str) -> bool {
    run.len() >= 8 && run.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// True for what Python writes before a quote: `b'…'`, `rb"…"`.
fn is_prefix(run: &str) -> bool {
    run.len() <= 2 && run.bytes().all(|b| b"bBrRuUfF".contains(&b))
}

/// How many digits of a port number stand here, if nothing shows that they are something else.
fn port_len(text: &[u8]) -> Option<usize> {
    let len = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let (next, after) = (text.get(len).copied().unwrap_or(0), text.get(len + 1).copied().unwrap_or(0));
    let goes_on = is_word(next) || matches!(next, b'.' | b'-' | b'+' | b':') && is_word(after);
    ((1..=5).contains(&len) && !goes_on).then_some(len)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn group(task: &str, kind: &str, message: &str) -> String {
        Group::of(task, &ErrorInfo { kind: kind.to_owned(), message: message.to_owned() }).0
    }

    /// The contract. A value in here may never change: stored groups and written rules would lose what they mean.
    #[test]
    fn golden() {
        for (task, kind, message, expected) in [
            ("", "", "", "96a296d224f2"),
            ("send_email", "ConnectionError", "smtp.example.test:25 timed out after 10.0s", "ff28a632a1b5"),
            ("send_email", "app.net.ConnectionError", "mail.example.test:587 timed out after 30s", "ff28a632a1b5"),
            (
                "charge_card",
                "TimeoutError",
                "POST https://pay.example.test/v1/charges/28289 exceeded 30s",
                "dca75764c31e",
            ),
            ("parse_order", "ValueError", "order 0 has no line items", "362e20fa5b37"),
            ("parse_order", "KeyError", "'sku'", "7ed9cd48a492"),
            ("über", "Fehler", "naïve café ☕ “17”", "9ca48106cd79"),
        ] {
            assert_eq!(group(task, kind, message), expected, "{task} {kind} {message}");
        }
    }

    #[test]
    fn normalised_messages() {
        for (message, expected) in [
            ("", ""),
            ("plain words stay", "plain words stay"),
            (" a\n\tb\u{0}\u{7f}  c ", "a b c"),
            ("order 17 has 3 items", "order * has * items"),
            ("took 10.0s, then -5 and +7 and 1,234.5", "took *, then * and * and *"),
            ("50% of #12 at $9.99", "*% of #* at $*"),
            ("[Errno 104] Connection reset by peer", "[Errno *] Connection reset by peer"),
            ("job d40ec568-1b2c-4d3e-8f90-aabbccddeeff gone", "job * gone"),
            ("commit deadbeefcafe, not decade", "commit *, not decade"),
            ("<Order object at 0x7f3a2b1c>", "<Order object at *>"),
            ("id=abc123 user_7 v1 utf-8 x", "id=* x"),
            ("10.1.2.3:6379 refused", "* refused"),
            ("10.0.0.1/24 and [::1]:80, fe80::1: down", "* and [*]:*: down"),
            ("mac aa:bb:cc:dd:ee:ff end", "mac * end"),
            ("std::bad_alloc in a::b", "std::bad_alloc in a::b"),
            ("smtp.example.test:25 timed out", "* timed out"),
            ("localhost:6379: refused", "*: refused"),
            ("crm.example.test: read timed out", "crm.example.test: read timed out"),
            ("db-7.internal is down", "* is down"),
            ("POST https://pay.example.test/v1/c/5?q=a&b=(1). Failed", "POST https://*). Failed"),
            ("(see redis://u:p@h:1/0), s3://b/k", "(see redis://*), s3://*"),
            ("no file /srv/app/x.py:12: error", "no file *: error"),
            ("'./a' ../b ~/c C:\\x\\y.txt c:/d and/or n/a /", "* and/or n/a /"),
            ("path=/var/lib/x,unix:/run/y.sock end", "path=* end"),
            ("\\\\server\\share x", "* x"),
            ("to user.name+tag@example.test, failed", "to *, failed"),
            ("name 'x' is not defined", "name * is not defined"),
            ("key \"a b\" and `c` and “d” and «e» and ‘f’", "key * and * and * and * and *"),
            ("version b'9', expected rb\"1\"", "version *, expected *"),
            ("it's the users' file, don't", "it's the users' file, don't"),
            ("'it's ok' x", "* x"),
            ("stray ' quote", "stray ' quote"),
            ("{'a': 1, 'b': [2, 3]}", "{*: *: [*]}"),
            ("missing: 'a', 'b', 'c'", "missing: *"),
            ("ids 1, 2; 3 and 4", "ids * and *"),
            ("at 2024-01-02 03:04:05.123+00:00 ok", "at * ok"),
            ("at 2024-01-02T03:04:05Z, 12:30:45 ok", "at * ok"),
            ("at Thu, 01 Jan 2024 00:00:00 GMT", "at * GMT"),
            ("* a ** b", "* a * b"),
            ("naïve café ☕", "naïve café ☕"),
        ] {
            assert_eq!(normalise(message), expected, "{message:?}");
        }
    }

    #[test]
    fn only_so_much_of_a_message_counts() {
        let long = "long story ".repeat(1_000);
        assert_eq!(normalise(&long).len(), KEPT_BYTES);
        assert_eq!(normalise(&"é".repeat(5_000)).len(), KEPT_BYTES);
        assert_eq!(normalise(&"☕".repeat(5_000)).len(), 399);
        assert_eq!(normalise(&format!("value '{long}")), "value *");
        assert_eq!(normalise(&"'a ".repeat(300)).len(), KEPT_BYTES, "every quote is stray");
    }

    /// One of two lists is drawn from twice, so that the same words stand around different values.
    fn values() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<i64>().prop_map(|n| n.to_string()),
            any::<f32>().prop_filter("a number", |n| n.is_finite()).prop_map(|n| format!("{n:.3}s")),
            any::<u128>().prop_map(|n| {
                let hex = format!("{n:032x}");
                format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
            }),
            any::<u64>().prop_map(|n| format!("{n:016x}")),
            any::<u64>().prop_map(|n| format!("0x{n:x}")),
            any::<[u8; 4]>().prop_map(|ip| std::net::Ipv4Addr::from(ip).to_string()),
            (any::<[u8; 4]>(), 1u16..).prop_map(|(ip, port)| format!("{}:{port}", std::net::Ipv4Addr::from(ip))),
            any::<u128>().prop_map(|n| std::net::Ipv6Addr::from(n | 1 << 100).to_string()),
            ("[a-z]{1,9}(\\.[a-z]{2,9}){0,2}", 1u16..).prop_map(|(host, port)| format!("{host}:{port}")),
            "(/[a-z0-9_.-]{1,9}[a-z]){1,5}",
            "'[a-z ]{0,20}'",
            "\"[a-zA-Z0-9/:@]{0,20}\"",
            "[a-z]{1,8}@[a-z]{1,8}\\.test",
            (0u8..24, 0u8..60, 0u8..60).prop_map(|(h, m, s)| format!("{h:02}:{m:02}:{s:02}")),
        ]
    }

    /// Texts rich in what the scanner reacts to.
    fn texts() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            values(),
            Just("://".to_owned()),
            Just("C:\\".to_owned()),
            Just("b'".to_owned()),
            "[-+*.,;:/\\\\~'\"`“”‘’«»@=()<> \n]{1,3}",
            "[a-fx0-9:]{1,6}",
            "[a-zé]{1,5}",
            any::<char>().prop_map(String::from),
        ];
        prop::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        #[test]
        fn values_do_not_tell_groups_apart(a in values(), b in values(), before in "([a-z]{2,7} ){0,3}", after in "( [a-z]{2,7}){0,3}") {
            let of = |value: &str| group("task", "Error", &format!("{before}{value}{after}"));
            prop_assert_eq!(of(&a), of(&b));
        }

        #[test]
        fn words_task_and_type_do(a in "[g-z]{2,7}", b in "[g-z]{2,7}") {
            prop_assume!(a != b);
            prop_assert_ne!(group(&a, "E", "m"), group(&b, "E", "m"));
            prop_assert_ne!(group("t", &a, "m"), group("t", &b, "m"));
            prop_assert_ne!(group("t", "E", &a), group("t", "E", &b));
            prop_assert_ne!(group(&a, &b, "m"), group(&b, &a, "m"));
        }

        #[test]
        fn normalising_again_changes_nothing(text in texts()) {
            let once = normalise(&text);
            // At the bound the end is missing that told what a quote was.
            prop_assume!(text.len() <= READ_BYTES && once.len() < KEPT_BYTES - 4);
            prop_assert_eq!(normalise(&once), once);
        }

        #[test]
        fn the_result_is_bounded_and_plain(text in prop_oneof![texts(), any::<String>()], times in 1usize..40) {
            let out = normalise(&text.repeat(times));
            prop_assert!(out.len() <= KEPT_BYTES);
            prop_assert!(!out.contains(|c: char| c.is_ascii_control()));
            prop_assert!(!out.contains("  ") && out.trim_matches(' ') == out);
        }
    }
}

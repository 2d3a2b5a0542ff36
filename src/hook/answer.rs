//! What of a receiver's answer a log may show: all of it or nothing.
//!
//! A receiver may repeat whatever it was sent: its URL, a header, the event. So only a short and plain answer is shown,
//! and only if nothing in it was sent. What makes it hard to compare (escapes, encodings, long words) hides it, too.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use reqwest::{Url, header::HeaderMap};
use serde_json::Value;

/// Characters of an answer at most; codes and short sentences are what helps, a page does not.
const LONGEST_ANSWER: usize = 100;
/// Letters and digits without a break at most: a longer word is a token, a hash or an encoded text.
const LONGEST_WORD: usize = 20;
/// What is shorter than this is repeated by chance.
const SHORTEST: usize = 4;
/// As much of a longer secret as may not be repeated. (Slack's URLs say `services`, its answers `no_service`.)
const STRETCH_OF_SECRET: usize = 8;
/// As much of the event as may not be repeated, whatever stands between its words.
const STRETCH_OF_EVENT: usize = 12;
/// Bytes of a body that is searched; next to a larger one nothing is shown.
const LARGEST_BODY: usize = 256 * 1024;
/// Characters beside letters and digits that hold a word together, as in an address.
const JOINS: &str = "@._-+";

/// What was sent to a receiver and must not come back into a log.
#[derive(Default)]
pub(super) struct Given<'a> {
    secrets: Vec<String>,
    body: &'a [u8],
}

impl<'a> Given<'a> {
    /// The URL as configured, the headers as sent (those marked sensitive count), the signing secrets, and the body.
    pub(super) fn new(
        url: &Url,
        headers: &HeaderMap,
        signing: impl IntoIterator<Item = String>,
        body: &'a [u8],
    ) -> Self {
        let mut secrets: Vec<String> = signing.into_iter().collect();
        let query = url.query().unwrap_or_default();
        let parts = [url.username(), url.password().unwrap_or_default(), url.fragment().unwrap_or_default()];
        // A name stands for what a query is about; without a value it may be the secret itself.
        let values = query.split('&').map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value));
        for part in parts.into_iter().chain([url.path()]).chain(url.path().split('/')).chain(values) {
            secrets.extend([part.to_owned(), percent_decoded(part)]);
        }
        for value in headers.values().filter(|value| value.is_sensitive()) {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            for word in value.split_whitespace() {
                secrets.push(word.to_owned());
                // `Basic` credentials.
                secrets.extend(base64_decoded(word).iter().flat_map(|pair| pair.split(':')).map(str::to_owned));
            }
            secrets.push(value);
        }
        let within: Vec<String> = secrets.iter().flat_map(|secret| words(secret)).collect();
        secrets.extend(within);
        secrets.retain(|secret| secret.chars().count() >= SHORTEST);
        Given { secrets, body }
    }

    fn is_repeated_in(&self, answer: &str) -> bool {
        let bare_answer = bare(answer);
        if self.secrets.iter().any(|it| answer.contains(it) || shares(&bare_answer, &bare(it), STRETCH_OF_SECRET)) {
            return true;
        }
        if self.body.len() > LARGEST_BODY {
            return true;
        }
        let event = texts_of(self.body).to_lowercase();
        words(&answer.to_lowercase()).iter().any(|word| event.contains(word))
            || shares(&bare_answer, &bare(&event), STRETCH_OF_EVENT)
    }
}

/// A refusal in one line: the status, and what the receiver says to it if that may be shown.
pub(super) fn refusal(status: u16, reason: Option<&str>, said: &[u8], given: &Given<'_>) -> String {
    let head = reason.map_or_else(|| status.to_string(), |reason| format!("{status} {reason}"));
    if said.trim_ascii().is_empty() {
        return head;
    }
    match plain(said).filter(|answer| !given.is_repeated_in(answer)) {
        Some(answer) => format!("{head}: {answer}"),
        None => format!("{head} (its answer is not shown)"),
    }
}

/// The answer in one line, if it is short, printable and as it reads.
fn plain(said: &[u8]) -> Option<String> {
    let line = std::str::from_utf8(said).ok()?.split_whitespace().collect::<Vec<_>>().join(" ");
    // Percent, ampersand and backslash begin the escapes of URLs, HTML and JSON.
    let is_plain = |c: char| c == ' ' || c.is_alphanumeric() || c.is_ascii_graphic() && !matches!(c, '%' | '&' | '\\');
    let is_long = |word: &str| word.chars().count() >= LONGEST_WORD;
    let fits = line.chars().count() <= LONGEST_ANSWER
        && line.chars().all(is_plain)
        && !line.split(|c: char| !(c.is_alphanumeric() || matches!(c, '+' | '/' | '='))).any(is_long);
    fits.then_some(line)
}

/// Letters and digits alone, in lower case: quotes, separators and case make no difference.
fn bare(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// True if the two have a stretch of this length in common, or all of a shorter `sent`.
fn shares(answer: &str, sent: &str, stretch: usize) -> bool {
    let length = sent.chars().take(stretch).count();
    let answer: Vec<char> = answer.chars().collect();
    length >= SHORTEST && answer.windows(length).any(|part| sent.contains(&part.iter().collect::<String>()))
}

/// The words that are long enough not to be repeated by chance.
fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !(c.is_alphanumeric() || JOINS.contains(c)))
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()))
        .filter(|word| word.chars().count() >= SHORTEST)
        .map(str::to_owned)
        .collect()
}

/// Everything a JSON body says, a value a line, without its names: those are no news. What is Base64 is decoded, too.
fn texts_of(body: &[u8]) -> String {
    let Ok(body) = serde_json::from_slice(body) else { return String::from_utf8_lossy(body).into_owned() };
    let (mut texts, mut left) = (String::new(), vec![&body]);
    let mut add = |text: &str| {
        texts.push_str(text);
        texts.push('\n');
    };
    while let Some(value) = left.pop() {
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(number) => add(&number.to_string()),
            Value::String(text) => {
                add(text);
                if let Some(text) = base64_decoded(text) {
                    add(&text);
                }
            }
            Value::Array(values) => left.extend(values),
            Value::Object(fields) => left.extend(fields.values()),
        }
    }
    texts
}

fn base64_decoded(text: &str) -> Option<String> {
    STANDARD.decode(text).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// What is no escape stays as it is.
fn percent_decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, after @ ..] = rest {
        let escaped = after.get(..2).filter(|_| *first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use reqwest::header::HeaderValue;

    use super::*;

    const URL: &str =
        "https://us%40er:pa55%2Fword@hooks.example.test/services/T0/B0/PSEG456%21x?token=QTOKEN123&k=a%2Bb%2Bc#frag";
    const BODY: &str = r#"{"type":"job.dead","data":{"task":"charge_card","queue":"q","attempts":31337,"error":
        {"message":"no line items for bob@ex.io, card 4111 1111 1111 1111"},"payload":"cGVwcGVybWludA=="}}"#;

    /// The answer as shown; `None` if it is not.
    fn shown(said: &str) -> Option<String> {
        shown_beside(said.as_bytes(), BODY.as_bytes())
    }

    fn shown_beside(said: &[u8], body: &[u8]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for (name, value, sensitive) in [
            ("x-api-key", "HEADERSECRET999", true),
            ("x-auth", "Bearer abc.DEF-123", true),
            // ann:lettuce
            ("authorization", "Basic YW5uOmxldHR1Y2U=", true),
            ("content-type", "application/json", false),
        ] {
            let mut value = HeaderValue::from_static(value);
            value.set_sensitive(sensitive);
            headers.insert(name, value);
        }
        let signing = ["whsec_MfKQ9r8GKYqrTwjU".to_owned(), "!?!?!?".to_owned()];
        let given = Given::new(&URL.parse().unwrap(), &headers, signing, body);
        let line = refusal(404, None, said, &given);
        assert_eq!(line.starts_with("404: "), line != "404 (its answer is not shown)", "{line}");
        line.strip_prefix("404: ").map(str::to_owned)
    }

    #[test]
    fn a_short_answer_of_the_receivers_own_words_is_shown() {
        for (said, line) in [
            ("no_service", "no_service"),
            ("invalid_token", "invalid_token"),
            ("posting_to_general_channel_denied", "posting_to_general_channel_denied"),
            (" bad\r\n\tsignature ", "bad signature"),
            (
                r#"{"error": "unsupported media: application/json"}"#,
                r#"{"error": "unsupported media: application/json"}"#,
            ),
            ("Für Ihr Konto gesperrt.", "Für Ihr Konto gesperrt."),
        ] {
            assert_eq!(shown(said).as_deref(), Some(line));
        }
        let given = Given::new(&URL.parse().unwrap(), &HeaderMap::new(), [], b"{}");
        assert_eq!(refusal(404, Some("Not Found"), b" \r\n", &given), "404 Not Found");
    }

    #[test]
    fn an_answer_that_repeats_a_secret_is_not_shown() {
        for said in [
            "bad key HEADERSECRET999",
            "bad key headersecret999",
            "bad key HEADERSE...",
            "bad key H-E-A-D-E-R-S-E-C-R-E-T-9-9-9",
            "abc.DEF-123 is over",
            "YW5uOmxldHR1Y2U=",
            "not lettuce",
            "unknown token QTOKEN123 for service x",
            "nothing at PSEG456!x",
            "nothing at PSEG456%21x",
            "nothing at T0/B0/PSEG",
            "k is a+b+c",
            "hello us@er",
            "pa55/word?",
            "#frag",
            "whsec_MfKQ9r8GKYqrTwjU",
            "MfKQ9r8GKYqrTwjU",
            "signed with !?!?!?",
        ] {
            assert_eq!(shown(said), None, "{said}");
        }
    }

    #[test]
    fn an_answer_that_repeats_the_event_is_not_shown() {
        for said in [
            "charge_card is unknown",
            "task='charge_card'",
            "who is bob@ex.io?",
            "email=BOB@EX.IO",
            "4111-1111-1111-1111",
            "no \"line\"",
            "31337",
            "peppermint",
            BODY,
        ] {
            assert_eq!(shown(said), None, "{said}");
        }
        assert_eq!(shown_beside(b"sorry", &vec![b' '; LARGEST_BODY + 1]), None, "too large to be searched");
        assert_eq!(shown_beside(b"who is bob@ex.io?", b"not JSON: bob@ex.io"), None);
    }

    #[test]
    fn what_is_long_escaped_or_not_printable_is_not_shown() {
        let fits = "x y ".repeat(25);
        assert!(shown(&fits).is_some());
        for said in [
            &format!("{fits} and more"),
            "a\u{1b}[31mb",
            "a\u{202e}b",
            "b\u{fffd}b",
            "b%6fb",
            "b&#111;b",
            r"b\u006fb",
            "Ym9iQGV4LmlvIGFuZCBtb3Jl",
            "3f2a91c07b5d4e8896aa",
        ] {
            assert_eq!(shown(said), None, "{said}");
        }
        assert_eq!(shown_beside(b"\xff\xfe", b"{}"), None);
    }

    proptest! {
        #[test]
        fn no_answer_shows_a_secret_whatever_stands_around_it(before in ".{0,20}", after in ".{0,20}") {
            for secret in ["HEADERSECRET999", "PSEG456", "QTOKEN123", "bob@ex.io", "charge_card"] {
                let line = shown(&format!("{before} {secret} {after}"));
                prop_assert!(line.is_none(), "{line:?}");
            }
        }

        #[test]
        fn any_url_body_and_answer_can_be_compared(path in ".{0,30}", body in ".{0,60}", said in ".{0,60}") {
            let mut url: Url = URL.parse().unwrap();
            url.set_path(&path);
            url.set_query(Some(&body));
            let given = Given::new(&url, &HeaderMap::new(), [path], body.as_bytes());
            let line = refusal(400, None, said.as_bytes(), &given);
            prop_assert!(line.chars().count() <= LONGEST_ANSWER + 5);
        }
    }
}

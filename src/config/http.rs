//! Reads `http:`.

use std::net::SocketAddr;

use super::{
    HttpConfig, TokenConfig,
    field::{Field, Section},
    origin::{self, Origin, Reading},
    shape,
    source::Names,
};

/// What the token is called that has no name of its own.
pub const UNNAMED_TOKEN: &str = "default";
/// Characters of a token at least.
const SHORTEST_TOKEN: usize = 16;
/// Characters of a token at most: it has to fit into a header.
const LONGEST_TOKEN: usize = 1024;

/// Reads it over the defaults.
pub(super) fn http(section: &Section<'_>, http: &mut HttpConfig, reading: &mut Reading) {
    if let Some(field) = section.get("listen") {
        let help = "write it like 0.0.0.0:9640 (any IPv4 address), 127.0.0.1:9640 or [::]:9640";
        let parse = |text: &str| text.parse::<SocketAddr>().ok();
        if let Some(listen) = field.parsed("an IP address and a port", help, &mut reading.problems, parse) {
            http.listen = listen.to_string();
        }
    }
    let mut tokens = Tokens { names: Names::new("token"), given: Vec::new() };
    if let Some(origin) = origin::one(section, "token", "token_file", reading) {
        tokens.names.reserve(UNNAMED_TOKEN, origin.field.at(), &reading.problems);
        tokens.take(UNNAMED_TOKEN.to_owned(), origin, reading);
    }
    let items = section.get("tokens").and_then(|field| field.list(&mut reading.problems)).unwrap_or_default();
    for item in items {
        named(item, &mut tokens, reading);
    }
    http.tokens = tokens.given.into_iter().map(|(token, _)| token).collect();
}

/// The tokens read so far, with what each is now.
struct Tokens {
    names: Names,
    given: Vec<(TokenConfig, super::Secret)>,
}

impl Tokens {
    fn take(&mut self, name: String, origin: Origin<'_>, reading: &mut Reading) {
        let what = match token_problem(origin.now.reveal()) {
            // Of two names for one token nobody could tell who it was.
            None => self.given.iter().find(|(_, known)| *known == origin.now).map(|(token, _)| {
                (
                    format!("this is the token of {:?} again", token.name),
                    "give every name a token of its own".to_owned(),
                )
            }),
            Some(wrong) => Some((format!("this token {wrong}"), "make one with: openssl rand -hex 32".to_owned())),
        };
        if let Some((message, help)) = what {
            reading.problems.add(origin.field.at(), message, help);
        }
        self.given.push((TokenConfig { name, secret: origin.source }, origin.now));
    }
}

fn named(field: Field<'_>, tokens: &mut Tokens, reading: &mut Reading) {
    let Some(section) = field.section(&shape::TOKEN, &mut reading.problems) else { return };
    let name = tokens.names.take(&section, &mut reading.problems);
    if section.get("token").is_none() && section.get("token_file").is_none() {
        let help = "give \"token\" or \"token_file\"";
        reading.problems.add(section.at, "\"token\" is missing in a token", help);
    }
    let origin = origin::one(&section, "token", "token_file", reading);
    if let (Some(name), Some(origin)) = (name, origin) {
        tokens.take(name, origin, reading);
    }
}

/// What is wrong with a token, if anything: too short to be safe, or nothing that a request could carry.
pub fn token_problem(token: &str) -> Option<String> {
    let length = token.chars().count();
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Some("has characters that no request can carry".to_owned());
    }
    if length < SHORTEST_TOKEN {
        return Some(format!("has {length} characters, and needs at least {SHORTEST_TOKEN}"));
    }
    (length > LONGEST_TOKEN).then(|| format!("has {length} characters, and may have {LONGEST_TOKEN} at most"))
}

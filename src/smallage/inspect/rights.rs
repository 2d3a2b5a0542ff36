//! Which rights are missing, found out by asking for each of them with a command that changes nothing even where it is
//! granted: its arguments make no sense, or its key does not exist.
//!
//! Redis looks at rights before it looks at arguments, so a command that is not allowed is told from one that is.

use std::collections::HashSet;

use redis::{Cmd, Value, cmd};

use crate::{
    config::RedisUrl,
    ledger::{Aspect, Finding},
    smallage::{
        Keys,
        rights::{self, Area, RIGHTS, RIGHTS_BEYOND, Right},
    },
};

/// A name that no key has, behind the beginning of an area.
const NO_KEY: &str = "sexton-check-of-rights";
/// What is neither a number, nor an entry's id, nor a script.
const NONSENSE: &str = "?";
/// As long as a script's digest, and none.
const NO_DIGEST: &str = "0000000000000000000000000000000000000000";
/// Missing rights of which it is told what they are for.
const EXPLAINED: usize = 3;
/// Areas in which any command may be tried: there are keys that do not exist.
const OPEN: [Area; 3] = [Area::Queues, Area::Dedup, Area::Ledger];

/// One command that asks for one right.
#[derive(Debug)]
pub(super) struct Try {
    right: &'static Right,
    /// Where; nowhere for a command without keys.
    area: Option<Area>,
    /// It is needed there, rather than tried to find out what is missing.
    needed: bool,
    pub(super) command: Cmd,
}

/// What to send, in order. `url` is none where it cannot be read any more.
pub(super) fn tries(keys: &Keys, url: Option<&RedisUrl>) -> Vec<Try> {
    let beyond = url.into_iter().flat_map(|url| {
        let database = url.database();
        rights::beyond(url).map(move |right| Try { right, area: None, needed: true, command: bare(right, database) })
    });
    let mut tries: Vec<Try> = beyond.collect();
    for right in RIGHTS {
        if right.areas.is_empty() {
            tries.push(Try { right, area: None, needed: true, command: cmd(&right.command.to_uppercase()) });
        }
        if let Some(command) = keyless(right.command) {
            tries.push(Try { right, area: None, needed: true, command });
        }
        for area in Area::ALL {
            let needed = right.areas.contains(&area);
            if needed || !right.areas.is_empty() && OPEN.contains(&area) {
                tries.push(Try { right, area: Some(area), needed, command: asking(right.command, &key(keys, area)) });
            }
        }
    }
    tries
}

/// A command without a key, which changes nothing in any case.
fn bare(right: &Right, database: &str) -> Cmd {
    let mut words = right.command.split('|').map(str::to_uppercase);
    let mut asking = cmd(&words.next().unwrap_or_default());
    words.for_each(|word| {
        asking.arg(word);
    });
    if right.command == "select" {
        // Where we are already.
        asking.arg(database);
    }
    asking
}

/// The key to ask with.
fn key(keys: &Keys, area: Area) -> String {
    match area {
        Area::Dlq => keys.dlq(),
        Area::Clock => keys.clock(),
        Area::Queues | Area::Dedup | Area::Ledger => {
            let pattern = area.pattern(keys);
            format!("{}{NO_KEY}", pattern.trim_end_matches('*'))
        }
    }
}

/// A script without keys: it tells whether the command is allowed at all.
fn keyless(command: &str) -> Option<Cmd> {
    command.starts_with("eval").then(|| {
        let mut asking = cmd(&command.to_uppercase());
        asking.arg(script(command)).arg(0);
        asking
    })
}

/// What cannot be run: no digest of any script, or no script.
fn script(command: &str) -> &'static str {
    if command.starts_with("evalsha") { NO_DIGEST } else { NONSENSE }
}

/// The command on this key, with arguments that keep it from changing anything.
fn asking(command: &str, key: &str) -> Cmd {
    let mut words = command.split('|');
    let mut asking = cmd(&words.next().unwrap_or_default().to_uppercase());
    for word in words {
        asking.arg(word.to_uppercase());
    }
    let (before, after): (&[&str], &[&str]) = match command {
        "evalsha" | "evalsha_ro" | "eval" | "eval_ro" => (&[script(command), "1"], &[]),
        // Neither there nor not there.
        "set" => (&[], &[NONSENSE, "NX", "XX"]),
        // A field without a value.
        "hset" => (&[], &["f", "v", "f"]),
        "hincrby" => (&[], &["f", NONSENSE]),
        "pexpire" => (&[], &[NONSENSE]),
        "xadd" => (&[], &["NOMKSTREAM", NONSENSE, "f", "v"]),
        "xdel" => (&[], &[NONSENSE]),
        "xtrim" => (&[], &["MAXLEN", NONSENSE]),
        "zadd" => (&[], &[NONSENSE, "m"]),
        "zremrangebyscore" => (&[], &[NONSENSE, NONSENSE]),
        // Of keys that do not exist.
        "hdel" => (&[], &["f"]),
        "zrem" => (&[], &["m"]),
        // Only read.
        "xread" => (&["COUNT", "1", "STREAMS"], &["$"]),
        "xrange" | "xrevrange" => (&[], &[NONSENSE, NONSENSE]),
        "zrange" | "zrangebyscore" | "zcount" => (&[], &["0", "0"]),
        "hget" | "hmget" | "zscore" | "zmscore" => (&[], &["f"]),
        _ => (&[], &[]),
    };
    for word in before {
        asking.arg(*word);
    }
    asking.arg(key);
    for word in after {
        asking.arg(*word);
    }
    asking
}

/// What an answer says about the right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Granted,
    /// The command is not granted there.
    NoCommand,
    /// The command is granted, and the key is not, or not for what the command does to it.
    NoKey,
    /// The server does not have this command, or not under this name.
    Unknown,
}

fn said(answer: Option<&Value>) -> Said {
    let Some(Value::ServerError(error)) = answer else {
        return if answer.is_some() { Said::Granted } else { Said::NoCommand };
    };
    let words = error.details().unwrap_or_default();
    match error.code() {
        // Commands are looked at before keys, and only the words tell which it was: all versions say "access" of keys,
        // and "run" of commands.
        "NOPERM" if words.contains("permissions to access") => Said::NoKey,
        "NOPERM" => Said::NoCommand,
        // It has no code of its own.
        _ if words.starts_with("unknown command") => Said::Unknown,
        _ => Said::Granted,
    }
}

/// What is missing.
#[derive(Debug, Default, PartialEq, Eq)]
struct Missing {
    commands: Vec<&'static str>,
    /// Areas, and whether some commands may use them all the same.
    areas: Vec<(Area, bool)>,
    /// Commands that are granted, and not for this area.
    pairs: Vec<(&'static str, Area)>,
    /// Commands that the server does not have.
    unknown: Vec<&'static str>,
}

impl Missing {
    fn of(outcomes: &[(&Try, Said)]) -> Missing {
        let any = |wanted: &dyn Fn(&Try, Said) -> bool| outcomes.iter().any(|(tried, said)| wanted(tried, *said));
        let command_granted = |command: &str| {
            any(&|tried, said| tried.right.command == command && matches!(said, Said::Granted | Said::NoKey))
        };
        let area_granted = |area: Area| any(&|tried, said| tried.area == Some(area) && said == Said::Granted);
        let mut missing = Missing::default();
        for (tried, said) in outcomes.iter().filter(|(tried, _)| tried.needed) {
            let command = tried.right.command;
            match (said, tried.area) {
                (Said::Granted, _) => {}
                (Said::Unknown, _) => add(&mut missing.unknown, command),
                (Said::NoKey, Some(area)) => add(&mut missing.areas, (area, area_granted(area))),
                (Said::NoCommand, Some(area)) if command_granted(command) => {
                    add(&mut missing.pairs, (command, area));
                }
                (Said::NoCommand | Said::NoKey, _) => add(&mut missing.commands, command),
            }
        }
        // No command that was refused says anything of its keys.
        for area in Area::ALL {
            if !any(&|tried, said| tried.area == Some(area) && said != Said::NoCommand) {
                add(&mut missing.areas, (area, false));
            }
        }
        missing.areas.sort_unstable();
        missing
    }

    fn is_empty(&self) -> bool {
        *self == Missing::default()
    }

    /// The words of `ACL SETUSER` that add it all.
    fn words(&self, keys: &Keys) -> Vec<String> {
        let mut words = Vec::new();
        for command in self.commands.iter().chain(self.pairs.iter().map(|(command, _)| command)) {
            add(&mut words, format!("+{command}"));
        }
        let areas = self.areas.iter().map(|(area, _)| area);
        for area in areas.chain(self.pairs.iter().map(|(_, area)| area)) {
            add(&mut words, area.word(keys));
        }
        words
    }
}

fn add<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

/// What is missing, by name, or that nothing is.
pub(super) fn judge(keys: &Keys, user: &str, tries: &[Try], answers: &[Value]) -> Vec<Finding> {
    let outcomes: Vec<(&Try, Said)> =
        tries.iter().enumerate().map(|(n, tried)| (tried, said(answers.get(n)))).collect();
    let missing = Missing::of(&outcomes);
    if missing.is_empty() {
        let commands: HashSet<&str> =
            tries.iter().filter(|tried| tried.needed).map(|tried| tried.right.command).collect();
        let rights = commands.len();
        return vec![Finding::ok(
            Aspect::Rights,
            format!("the user {user} has all rights that are needed: {rights} commands, {} keys", Area::ALL.len()),
        )];
    }
    let mut found = Vec::new();
    let words = missing.words(keys);
    if !words.is_empty() {
        let told = in_words(keys, user, &missing);
        let help = format!("ACL SETUSER {user} {}", words.join(" "));
        found.push(Finding { missing: words, ..Finding::unusable(Aspect::Rights, told, help) });
    }
    if !missing.unknown.is_empty() {
        let names: Vec<String> = missing.unknown.iter().map(|command| name(command)).collect();
        found.push(Finding {
            missing: missing.unknown.iter().map(ToString::to_string).collect(),
            ..Finding::unusable(
                Aspect::Rights,
                format!("it does not know {}", names.join(", ")),
                "use a Redis that has them, and has not given them other names (rename-command)",
            )
        });
    }
    found
}

fn in_words(keys: &Keys, user: &str, missing: &Missing) -> String {
    let purposes = || RIGHTS.iter().chain(RIGHTS_BEYOND.iter().map(|(_, right)| right));
    let explained = missing.commands.len() + missing.areas.len() + missing.pairs.len() <= EXPLAINED;
    let why = |purpose: &str| if explained { format!(" ({purpose})") } else { String::new() };
    let purpose_of = |command: &str| purposes().find(|right| right.command == command).map(|right| right.purpose);
    let mut told: Vec<String> = missing
        .commands
        .iter()
        .map(|command| format!("{}{}", name(command), why(purpose_of(command).unwrap_or_default())))
        .collect();
    for (command, area) in &missing.pairs {
        told.push(format!("{} on {}{}", name(command), area.pattern(keys), why(area.purpose())));
    }
    let area = |(area, in_part): &(Area, bool)| {
        let in_part = if *in_part { " in full" } else { "" };
        format!("{}{in_part}{}", area.pattern(keys), why(area.purpose()))
    };
    let areas: Vec<String> = missing.areas.iter().map(area).collect();
    let commands = (!told.is_empty()).then(|| format!("may not use {}", told.join(", ")));
    let areas = (!areas.is_empty()).then(|| format!("may not use the keys {}", areas.join(", ")));
    let both: Vec<String> = commands.into_iter().chain(areas).collect();
    format!("the user {user} {}", both.join(", and "))
}

/// As people write a command.
fn name(command: &str) -> String {
    command.replace('|', " ").to_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        Keys::new("lrs").unwrap()
    }

    /// What a server would say, and what is made of it.
    fn missing(says: &dyn Fn(&str, Option<Area>) -> Said) -> Missing {
        let tries = tries(&keys(), None);
        let outcomes: Vec<_> = tries.iter().map(|tried| (tried, says(tried.right.command, tried.area))).collect();
        Missing::of(&outcomes)
    }

    #[test]
    fn what_is_missing_is_named_and_nothing_else() {
        let unless = |refused: bool, said: Said| if refused { said } else { Said::Granted };
        assert!(missing(&|_, _| Said::Granted).is_empty());
        for right in RIGHTS {
            let found = missing(&|command, _| unless(command == right.command, Said::NoCommand));
            assert_eq!(found, Missing { commands: vec![right.command], ..Missing::default() });
        }
        for lost in Area::ALL {
            let found = missing(&|_, area| unless(area == Some(lost), Said::NoKey));
            assert_eq!(found, Missing { areas: vec![(lost, false)], ..Missing::default() });
            // Whatever else: this area alone, and every command.
            let found = missing(&|_, area| unless(area.is_some_and(|area| area != lost), Said::NoKey));
            let others = Area::ALL.into_iter().filter(|area| *area != lost).map(|area| (area, false)).collect();
            assert_eq!(found, Missing { areas: others, ..Missing::default() });
        }
        let queues = Some(Area::Queues);
        let found = missing(&|command, area| match command {
            "xadd" => Said::NoCommand,
            _ => unless(area == queues, Said::NoKey),
        });
        let areas = vec![(Area::Queues, false)];
        assert_eq!(found, Missing { commands: vec!["xadd"], areas, ..Missing::default() });
        // Of a user with several sets of rights, and of one that may only read.
        let xadd = |command: &str, area| command == "xadd" && area == queues;
        let found = missing(&|command, area| unless(xadd(command, area), Said::NoCommand));
        assert_eq!(found, Missing { pairs: vec![("xadd", Area::Queues)], ..Missing::default() });
        let found = missing(&|command, area| unless(xadd(command, area), Said::NoKey));
        assert_eq!(found, Missing { areas: vec![(Area::Queues, true)], ..Missing::default() });
    }

    #[test]
    fn what_the_url_asks_for_needs_more() {
        for (text, expected) in [
            ("redis://h", None),
            ("redis://h/3", Some("SELECT")),
            ("unix:///s?db=1", Some("SELECT")),
            ("redis+sentinel://h/m", Some("ROLE")),
            ("redis+sentinel://h/m/0", Some("ROLE")),
            ("redis+cluster://h", Some("CLUSTER SLOTS")),
        ] {
            let url = RedisUrl::read(text).unwrap();
            let keys = keys();
            let all = tries(&keys, Some(&url));
            assert_eq!(all.len() - tries(&keys, None).len(), expected.iter().count(), "{text}");
            let no = redis::parse_redis_value(b"-NOPERM no permissions to run it\r\n").unwrap();
            let command = expected.unwrap_or("none").to_lowercase().replace(' ', "|");
            let says = |tried: &Try| if tried.right.command == command { no.clone() } else { Value::Nil };
            let found = judge(&keys, "sexton", &all, &all.iter().map(says).collect::<Vec<_>>());
            let help = expected.map(|_| format!("ACL SETUSER sexton +{command}"));
            assert_eq!(found[0].help, help, "{text}");
            let told = found[0]
                .message
                .starts_with(&format!("the user sexton may not use {} (", expected.unwrap_or_default()));
            assert_eq!(told, expected.is_some(), "{found:?}");
        }
    }

    #[test]
    fn who_may_do_nothing_lacks_all_and_who_may_use_no_key_lacks_the_keys() {
        let found = missing(&|_, _| Said::NoCommand);
        assert_eq!((found.commands.len(), found.areas.len()), (RIGHTS.len(), Area::ALL.len()));
        let found = missing(&|_, area| if area.is_some() { Said::NoKey } else { Said::Granted });
        assert_eq!(found, Missing { areas: Area::ALL.map(|area| (area, false)).to_vec(), ..Missing::default() });
    }

    #[test]
    fn keys_are_told_from_commands_by_the_words_of_every_version() {
        for (words, expected) in [
            ("NOPERM this user has no permissions to run the 'xadd' command", Said::NoCommand),
            ("NOPERM User sexton has no permissions to run the 'xadd' command", Said::NoCommand),
            ("NOPERM this user has no permissions to access one of the keys used as arguments", Said::NoKey),
            ("NOPERM No permissions to access a key", Said::NoKey),
            ("ERR unknown command 'XADD', with args", Said::Unknown),
            ("WRONGTYPE it is", Said::Granted),
        ] {
            let answer = redis::parse_redis_value(format!("-{words}\r\n").as_bytes()).unwrap();
            assert_eq!(said(Some(&answer)), expected, "{words}");
        }
    }

    #[test]
    fn the_remedy_is_one_line_that_adds_what_is_missing() {
        let keys = keys();
        let tries = tries(&keys, None);
        let refused = |words: &str| redis::parse_redis_value(format!("-NOPERM {words}\r\n").as_bytes()).unwrap();
        let answer = |tried: &Try| match (tried.right.command, tried.area) {
            ("xinfo|stream", _) => refused("this user has no permissions to run it"),
            (_, Some(Area::Clock)) => refused("No permissions to access a key"),
            _ => Value::Nil,
        };
        let answers: Vec<Value> = tries.iter().map(answer).collect();
        let found = judge(&keys, "sexton", &tries, &answers);
        assert_eq!(
            found[0].message,
            "the user sexton may not use XINFO STREAM (deaths that nobody saw are counted), and may not use the keys \
             {lrs}:sched (what became of a retried job is looked up there)"
        );
        assert_eq!(found[0].help.as_deref(), Some("ACL SETUSER sexton +xinfo|stream %R~{lrs}:sched"));
        assert_eq!(found[0].missing, ["+xinfo|stream", "%R~{lrs}:sched"]);
        let unknown = redis::parse_redis_value(b"-ERR unknown command 'EVAL_RO', with args\r\n").unwrap();
        let answer = |tried: &Try| if tried.right.command == "eval_ro" { unknown.clone() } else { Value::Nil };
        let answers: Vec<Value> = tries.iter().map(answer).collect();
        let found = judge(&keys, "sexton", &tries, &answers);
        assert_eq!((found.len(), found[0].message.as_str()), (1, "it does not know EVAL_RO"));
    }
}

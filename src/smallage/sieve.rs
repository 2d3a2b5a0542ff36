//! A sieve as the script of a scan takes it: globs become Lua patterns without repetitions, so that no name, however
//! long, takes long to match.

use super::connection::Arg;
use crate::{ledger::Sieve, rule::Globs};

/// A sieve's arguments.
#[derive(Debug)]
pub(super) struct SieveArgs<'a> {
    tasks: Option<Vec<Glob>>,
    queues: Option<Vec<Glob>>,
    reasons: Option<&'a [String]>,
    job_id: Option<&'a str>,
}

impl<'a> SieveArgs<'a> {
    /// Of this sieve. Globs that cannot be translated let everything through.
    pub(super) fn of(sieve: &'a Sieve) -> SieveArgs<'a> {
        SieveArgs {
            tasks: sieve.task.as_ref().and_then(translated),
            queues: sieve.queue.as_ref().and_then(translated),
            reasons: sieve.reason.as_deref(),
            job_id: sieve.job_id.as_deref(),
        }
    }

    /// Appends them to those of a call, as `scan.lua` wants them.
    pub(super) fn args<'s: 'a>(&'s self, args: &mut Vec<Arg<'a>>) {
        for globs in [&self.tasks, &self.queues] {
            args.push(globs.as_ref().map_or(Arg::Int(-1), |globs| Arg::place(globs.len())));
            for glob in globs.iter().flatten() {
                args.push(Arg::place(glob.pieces.len()));
                args.extend(glob.pieces.iter().map(|piece| Arg::Text(piece)));
                args.extend(glob.ending.map(Arg::place));
            }
        }
        args.push(self.reasons.map_or(Arg::Int(-1), |reasons| Arg::place(reasons.len())));
        args.extend(self.reasons.into_iter().flatten().map(|reason| Arg::Text(reason)));
        match self.job_id {
            Some(job_id) => args.extend([Arg::Text("1"), Arg::Text(job_id)]),
            None => args.push(Arg::Text("0")),
        }
    }
}

/// A glob as the pieces between its `*`: the first begins the name, the last ends it.
#[derive(Debug, PartialEq, Eq)]
struct Glob {
    pieces: Vec<String>,
    /// Bytes that the last of several pieces takes.
    ending: Option<usize>,
}

fn translated(globs: &Globs) -> Option<Vec<Glob>> {
    globs.plain()?.iter().map(|glob| Glob::of(glob)).collect()
}

impl Glob {
    /// None for a glob that no Lua pattern can hold.
    fn of(glob: &str) -> Option<Glob> {
        if glob.contains('\0') {
            return None;
        }
        let mut pieces: Vec<String> = glob.split('*').map(pattern).collect();
        let ending = glob.rsplit_once('*').map(|(_, ending)| ending.len());
        if let Some(first) = pieces.first_mut() {
            first.insert(0, '^');
        }
        if let Some(last) = pieces.last_mut() {
            if ending.is_some() {
                last.insert(0, '^');
            }
            last.push('$');
        }
        Some(Glob { pieces, ending })
    }
}

fn pattern(piece: &str) -> String {
    let mut pattern = String::with_capacity(piece.len() + 2);
    for c in piece.chars() {
        match c {
            '?' => pattern.push('.'),
            c if c.is_ascii_punctuation() => pattern.extend(['%', c]),
            c => pattern.push(c),
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_become_pieces_that_are_found_one_after_the_other() {
        for (glob, pieces, ending) in [
            ("", &["^$"][..], None),
            ("send_email", &["^send%_email$"], None),
            ("*", &["^", "^$"], Some(0)),
            ("send_*", &["^send%_", "^$"], Some(0)),
            ("*é?.x", &["^", "^é.%.x$"], Some(5)),
            ("a*b%*c^$", &["^a", "b%%", "^c%^%$$"], Some(3)),
        ] {
            let pieces = pieces.iter().map(|&piece| piece.to_owned()).collect();
            assert_eq!(Glob::of(glob), Some(Glob { pieces, ending }), "{glob}");
        }
        assert_eq!(Glob::of("a\0b"), None);
    }
}

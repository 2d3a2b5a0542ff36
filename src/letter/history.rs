//! The recorded attempts of a job, what they say together, and whom to believe about the last one.

use super::{Account, ErrorInfo, group::normalise_start};

/// Attempts kept of a history, the newest.
const KEPT: usize = 50;
/// Bytes of a history looked at, the last.
const READ_BYTES: usize = 64 * 1024;
/// smallage cuts its lines, attempt number included, at 200 characters: a type and message of this length together may
/// have lost their end.
const MAYBE_CUT_BYTES: usize = 180;

/// One recorded failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Its number, from 0, where the record says.
    pub number: Option<u32>,
    /// How it failed.
    pub error: ErrorInfo,
}

impl Attempt {
    /// Reads lines of `<number>: <Type>: <message>`, oldest first; a line that is otherwise is kept as its message.
    /// Empty lines are passed over. Of a very long history the newest 50 attempts are kept.
    pub fn read_lines(bytes: &[u8]) -> Vec<Attempt> {
        let skipped = bytes.len().saturating_sub(READ_BYTES);
        let text = String::from_utf8_lossy(&bytes[skipped..]);
        // What was skipped may have left half a line.
        let text = if skipped > 0 { text.split_once('\n').map_or(&*text, |(_, rest)| rest) } else { &*text };
        let lines = text.split('\n').rev().filter(|line| !line.trim().is_empty());
        let mut attempts: Vec<Attempt> = lines.take(KEPT).map(Attempt::read).collect();
        attempts.reverse();
        attempts
    }

    fn read(line: &str) -> Attempt {
        let numbered = line.split_once(": ").and_then(|(number, rest)| Some((number.parse().ok()?, rest)));
        match numbered {
            Some((number, rest)) => Attempt { number: Some(number), error: ErrorInfo::from_line(rest) },
            None => Attempt { number: None, error: ErrorInfo::from_text(line) },
        }
    }
}

/// The recorded attempts of each life of a job, oldest life first: a job that was put back keeps its history and counts
/// its attempts anew, so a number that does not rise begins another life.
pub fn lives(attempts: &[Attempt]) -> Vec<&[Attempt]> {
    attempts
        .chunk_by(|before, after| before.number.zip(after.number).is_none_or(|(before, after)| before < after))
        .collect()
}

/// The recorded attempts of the job's last life. `failed` is how many attempts had failed in it before the last one,
/// where the record says; the newest attempts are of a life before if their number does not fit.
pub fn last_life(attempts: &[Attempt], failed: Option<u32>) -> &[Attempt] {
    let newest = lives(attempts).pop().unwrap_or_default();
    let belongs = |attempt: &Attempt| {
        let fits = |(number, failed): (u32, u32)| number.checked_add(1) == Some(failed);
        attempt.number.zip(failed).is_none_or(fits)
    };
    if newest.last().is_some_and(belongs) { newest } else { &[] }
}

/// Whether all known attempts of a job failed alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// All alike: a real bug, or one thing that is down.
    Same,
    /// Not alike: an unhealthy dependency.
    Mixed,
    /// Fewer than two attempts are known.
    #[default]
    Unknown,
}

impl Verdict {
    /// The wire name: `same`, `mixed` or `unknown`.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Same => "same",
            Verdict::Mixed => "mixed",
            Verdict::Unknown => "unknown",
        }
    }

    /// The verdict over the recorded attempts and, where it is known beside them, the last failure.
    pub fn over(history: &[Attempt], last: Option<&ErrorInfo>) -> Verdict {
        let mut errors = last.into_iter().chain(history.iter().rev().map(|attempt| &attempt.error));
        let Some(first) = errors.next() else { return Verdict::Unknown };
        let mut others = errors.peekable();
        if others.peek().is_none() {
            return Verdict::Unknown;
        }
        let mut judged = first;
        // Mostly a job fails in the very same words, which need not be judged again.
        let same = others.all(|other| std::mem::replace(&mut judged, other) == other || alike(first, other));
        if same { Verdict::Same } else { Verdict::Mixed }
    }
}

/// Decides what ended the last attempt, and whether all attempts failed alike.
///
/// The account is believed where it is told to its end, or where what it shows is what the newest recorded attempt
/// says too (it then has the longer message). Else the newest recorded attempt is the best witness, and the last
/// failure does not count towards the verdict. With neither, what the account shows has to do.
pub fn conclude(account: Account, history: &[Attempt]) -> (ErrorInfo, Verdict) {
    match history.last() {
        Some(newest) if account.error.is_empty() || !account.complete && !alike(&account.error, &newest.error) => {
            (newest.error.clone(), Verdict::over(history, None))
        }
        _ => {
            let last = Some(&account.error).filter(|error| !error.is_empty());
            let verdict = Verdict::over(history, last);
            (account.error, verdict)
        }
    }
}

/// True if two failures are of one kind: the same class, whatever module path is written, and the same normalised
/// message.
///
/// One message may go on where the other ends: notes, hints (`Did you mean`), a syntax error's place and
/// sub-exceptions stand in the one place and not in the other, and history lines are cut.
fn alike(a: &ErrorInfo, b: &ErrorInfo) -> bool {
    if a.class_name() != b.class_name() {
        return false;
    }
    if a.message == b.message {
        return true;
    }
    let maybe_cut = [a, b].into_iter().all(|error| error.kind.len() + error.message.len() >= MAYBE_CUT_BYTES);
    let comparable = |error: &ErrorInfo| match error.message.rsplit_once(char::is_whitespace) {
        // What the cut left of a word or a quoted value may read like something else.
        Some((start, _)) if maybe_cut => normalise_start(start, true),
        _ => normalise_start(&error.message, maybe_cut),
    };
    let (mut short, mut long) = (comparable(a), comparable(b));
    if short.len() > long.len() {
        std::mem::swap(&mut short, &mut long);
    }
    if maybe_cut {
        // The place of the cut depends on the length of the numbers before it, so the last word need not agree.
        let common = short.bytes().zip(long.bytes()).take_while(|(a, b)| a == b).count();
        return common >= short.rfind(' ').unwrap_or(0) && 2 * common >= short.len();
    }
    let goes_on = |rest: &str| rest.is_empty() || !short.is_empty() && !rest.starts_with(char::is_alphanumeric);
    long.strip_prefix(&short).is_some_and(goes_on)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(text: &str) -> ErrorInfo {
        ErrorInfo::from_line(text)
    }

    #[test]
    fn a_number_that_does_not_rise_begins_another_life() {
        let lengths = |history: &str| {
            let attempts = Attempt::read_lines(history.as_bytes());
            lives(&attempts).iter().map(|life| life.len()).collect::<Vec<_>>()
        };
        for (history, expected) in [
            ("", vec![]),
            ("0: A: x", vec![1]),
            ("0: A: x\n1: A: x\n0: B: y\n1: B: y", vec![2, 2]),
            ("0: A: x\n0: A: x\n0: A: x", vec![1, 1, 1]),
            ("3: A: x\n4: A: x\n0: A: x", vec![2, 1]),
            ("A: x\nA: x", vec![2]),
        ] {
            assert_eq!(lengths(history), expected, "{history}");
        }
    }

    #[test]
    fn the_last_life_is_empty_where_the_newest_attempts_are_of_a_life_before() {
        let attempts = Attempt::read_lines(b"0: A: x\n1: A: x\n0: B: y\n1: B: y");
        assert_eq!(last_life(&attempts, Some(2)), &attempts[2..]);
        assert!(last_life(&attempts, Some(0)).is_empty(), "it failed at its first attempt");
        assert!(last_life(&attempts, Some(1_000_000)).is_empty(), "it was put back with no second attempt left to it");
        assert_eq!(last_life(&attempts, None), &attempts[2..]);
        assert!(last_life(&[], None).is_empty());
    }

    fn verdict(history: &str, last: Option<&str>) -> &'static str {
        Verdict::over(&Attempt::read_lines(history.as_bytes()), last.map(error).as_ref()).as_str()
    }

    /// A history line as smallage cuts it.
    fn cut(line: &str) -> String {
        line.replace('\n', " ").chars().take(200).collect()
    }

    #[test]
    fn lines_are_read_leniently() {
        for (lines, expected) in [
            (&b"0: ValueError: a: b"[..], &[(Some(0), "ValueError", "a: b")][..]),
            (b"8: A: x\n9: B: y", &[(Some(8), "A", "x"), (Some(9), "B", "y")]),
            (b"0: TimeoutError: ", &[(Some(0), "TimeoutError", "")]),
            (b"0: TimeoutError", &[(Some(0), "TimeoutError", "")]),
            (b"0: gaierror: [Errno -2]", &[(Some(0), "gaierror", "[Errno -2]")]),
            (b"0: not a type: x", &[(Some(0), "", "not a type: x")]),
            (b"ValueError: x", &[(None, "ValueError", "x")]),
            (b"x: ValueError: y", &[(None, "", "x: ValueError: y")]),
            (b"99999999999: A: x", &[(None, "", "99999999999: A: x")]),
            (b"-1: A: x", &[(None, "", "-1: A: x")]),
            (b"0: A: \xff", &[(Some(0), "A", "\u{fffd}")]),
            (b"\n 0: A: x \n\n", &[(None, "", "0: A: x")]),
            (b"", &[]),
            (b"\n\n", &[]),
        ] {
            let attempts = Attempt::read_lines(lines);
            let read: Vec<_> =
                attempts.iter().map(|a| (a.number, a.error.kind.as_str(), a.error.message.as_str())).collect();
            assert_eq!(read, expected, "{}", lines.escape_ascii());
        }
    }

    #[test]
    fn of_a_long_history_the_newest_attempts_are_kept() {
        let lines: Vec<_> = (0..5_000).map(|n| format!("{n}: ValueError: {}", "x".repeat(150))).collect();
        let attempts = Attempt::read_lines(lines.join("\n").as_bytes());
        assert_eq!(attempts.len(), KEPT);
        assert_eq!(attempts.last().unwrap().number, Some(4_999));
        let one_line = "0: ValueError: x".to_owned() + &"y".repeat(1 << 20);
        assert_eq!(Attempt::read_lines(one_line.as_bytes()).len(), 1);
    }

    #[test]
    fn the_verdict_looks_at_kinds_of_failure() {
        for (name, history, last, expected) in [
            ("nothing", "", None, "unknown"),
            ("the last alone", "", Some("A: x"), "unknown"),
            ("one recorded", "0: A: x", None, "unknown"),
            ("same", "0: A: x\n1: A: x", Some("A: x"), "same"),
            ("numbers differ", "0: A: order 17\n1: A: order 4711", Some("A: order 3"), "same"),
            ("types differ", "0: A: x\n1: B: x", Some("A: x"), "mixed"),
            ("messages differ", "0: A: x\n1: A: y", Some("A: x"), "mixed"),
            ("the last differs", "0: A: x\n1: A: x", Some("B: x"), "mixed"),
            ("module path", "0: Down: x", Some("app.errors.Down: x"), "same"),
            ("several lines", "0: A: one two ", Some("A: one\ntwo\n"), "same"),
            ("notes", "0: A: bad", Some("A: bad\nnote"), "same"),
            (
                "hint",
                "0: NameError: name 'x' is not defined",
                Some("NameError: name 'x' is not defined. Did you mean: 'y'?"),
                "same",
            ),
            ("place", "0: SyntaxError: invalid syntax (<cfg>, line 1)", Some("SyntaxError: invalid syntax"), "same"),
            ("longer word", "0: A: timeout", Some("A: timeouts"), "mixed"),
            ("no message", "0: TimeoutError: \n1: TimeoutError: ", Some("TimeoutError"), "same"),
            ("message in one only", "0: TimeoutError: ", Some("TimeoutError: crm"), "mixed"),
            ("no types", "0: it broke: a\n1: it broke: a", None, "same"),
        ] {
            assert_eq!(verdict(history, last), expected, "{name}");
        }
    }

    #[test]
    fn the_cut_of_a_line_does_not_make_it_mixed() {
        let words = "the stock service did not answer in time ".repeat(12);
        for last in [
            format!("app.Down: order 12345 {words}"),
            format!("Down: {}", "é".repeat(4_000)),
            format!("Down: value '{words}' refused"),
            format!("Down: {}https://pay.example.test/v1/{}", &words[..150], "charges/".repeat(20)),
            format!("Down: {}d40ec568-aaaa-bbbb-cccc-0123456789ab", &words[..178]),
        ] {
            let short = last.strip_prefix("app.").unwrap_or(&last);
            let history =
                format!("{}\n{}", cut(&format!("0: {short}")), cut(&format!("11: {}", short.replace("12345", "7"))));
            assert_eq!(verdict(&history, Some(&last)), "same", "{last}");
            assert_eq!(verdict(&history, None), "same", "{last}");
            assert_eq!(verdict(&history, Some(&format!("Down: quite another thing {words}"))), "mixed", "{last}");
        }
    }

    #[test]
    fn the_best_witness_is_believed() {
        let seen = |text: &str, complete| Account { error: error(text), complete };
        for (name, account, history, expected, verdict) in [
            ("told to its end", seen("A: x", true), "0: B: y\n1: B: y", "A: x", "mixed"),
            ("cut in a cause", seen("Cause: c", false), "0: B: y\n1: B: y", "B: y", "same"),
            ("cut in a cause, one recorded", seen("Cause: c", false), "0: B: y", "B: y", "unknown"),
            ("cut in a type", seen("Conn", false), "0: ConnectionError: y\n1: B: y", "B: y", "mixed"),
            ("cut, but both agree", seen("app.B: y\nand more", false), "0: B: y", "app.B: y\nand more", "same"),
            ("cut, no history", seen("Cause: c", false), "", "Cause: c", "unknown"),
            ("nothing", Account::default(), "0: A: x\n1: B: y", "B: y", "mixed"),
            ("nothing at all", Account::default(), "", "", "unknown"),
        ] {
            let (error, found) = conclude(account, &Attempt::read_lines(history.as_bytes()));
            assert_eq!((error.to_string().as_str(), found.as_str()), (expected, verdict), "{name}");
        }
    }

    proptest! {
        #[test]
        fn reading_and_judging_never_fail(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            lines in prop::collection::vec("([0-9]{1,12}: )?([A-Za-z.]{0,9}: )?.{0,220}", 0..12),
            last in any::<String>(),
        ) {
            Verdict::over(&Attempt::read_lines(&bytes), None);
            let attempts = Attempt::read_lines(lines.join("\n").as_bytes());
            prop_assert!(attempts.len() <= KEPT);
            conclude(Account { error: error(&last), complete: false }, &attempts);
            conclude(Account { error: error(&last), complete: true }, &attempts);
        }

        #[test]
        fn a_failure_repeated_is_the_same(kind in "[A-Z][a-z]{1,9}", message in ".{0,400}", times in 1usize..9) {
            let last = format!("{kind}: {message}");
            let history: Vec<_> = (0..times).map(|n| cut(&format!("{n}: {last}"))).collect();
            prop_assert_eq!(verdict(&history.join("\n"), Some(&last)), "same");
        }
    }
}

//! The audit of retries: what the workers wrote down, held against what the rules allow. Pure.
//!
//! A *life* of a job is its way from the queue to the end: it ran through, or was buried after its last attempt. The
//! first life begins when the job is enqueued, every further one with a retry, so lives tell of retries without asking
//! whoever made them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The attempt with which a job that has a dedup key is put back: so high that failing buries it at once.
const PUT_BACK_WITH_DEDUP: u32 = 1_000_000;

/// One run of a task, as its worker wrote it down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The job.
    pub(crate) job: String,
    /// Its task.
    pub(crate) task: String,
    /// Attempts that had failed before it in this life.
    pub(crate) attempt: u32,
    /// Whether it ran through.
    pub(crate) ok: bool,
    /// When, in milliseconds by Redis.
    pub(crate) at: i64,
    /// The job's entry on the queue.
    pub(crate) entry: String,
}

/// One entry of the DLQ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grave {
    /// Its id.
    pub(crate) entry: String,
    /// The job.
    pub(crate) job: String,
    /// When it was buried, in milliseconds by Redis.
    pub(crate) at: i64,
}

/// Where everything is at one moment, and what has happened up to then.
#[derive(Clone, Debug, Default)]
pub(crate) struct Picture {
    /// Every run, in order.
    pub(crate) runs: Vec<Run>,
    /// The DLQ, in order.
    pub(crate) dead: Vec<Grave>,
    /// The jobs on the queue, running ones included.
    pub(crate) queued: Vec<String>,
    /// The jobs that wait for another attempt of the workers' own.
    pub(crate) scheduled: Vec<String>,
}

/// What the rules allow, and how the workers try.
#[derive(Clone, Debug)]
pub(crate) struct Allowed {
    /// The age a death needs before its first retry.
    pub(crate) min_age: Duration,
    /// What it is multiplied with for every retry so far.
    pub(crate) backoff: f64,
    /// Retries of one job, over all its deaths.
    pub(crate) max_retries: u32,
    /// The workers' attempts in one life.
    pub(crate) max_attempts: u32,
    /// Queue entries that somebody else has made of dead letters: those retries are none of ours.
    pub(crate) elsewhere: BTreeSet<String>,
}

/// One life that began with a retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Retry {
    /// The job.
    pub(crate) job: String,
    /// Which retry of the job it was, from 1 on.
    pub(crate) number: u32,
    /// When the job had died, in milliseconds by Redis.
    pub(crate) died: i64,
    /// When it was put back.
    pub(crate) put_back: i64,
    /// When it ran through or died again, if it has.
    pub(crate) ended: Option<i64>,
    /// Whether it ran through.
    pub(crate) ok: bool,
}

/// What one job has lived through.
#[derive(Clone, Debug, Default)]
struct Life<'a> {
    runs: Vec<&'a Run>,
}

impl<'a> Life<'a> {
    fn last(&self) -> &'a Run {
        self.runs.last().expect("a life begins with a run")
    }
}

impl Picture {
    /// Retries made so far, whoever made them: lives beyond each job's first, by job. `max_attempts` are the workers'.
    pub(crate) fn retries(&self, max_attempts: u32) -> Vec<Retry> {
        let mut retries = Vec::new();
        for (job, runs) in self.by_job() {
            let lives = lives(&runs).0;
            for (pair, number) in lives.windows(2).zip(1..) {
                let (died, first, last) = (pair[0].last(), pair[1].runs[0], pair[1].last());
                retries.push(Retry {
                    job: job.to_owned(),
                    number,
                    died: died.at,
                    put_back: put_back(first),
                    ended: (last.ok || last.attempt + 1 >= max_attempts).then_some(last.at),
                    ok: last.ok,
                });
            }
        }
        retries
    }

    /// How often each job has run through.
    pub(crate) fn ran_through(&self) -> BTreeMap<&str, usize> {
        let mut times = BTreeMap::new();
        for run in self.runs.iter().filter(|run| run.ok) {
            *times.entry(run.job.as_str()).or_default() += 1;
        }
        times
    }

    fn by_job(&self) -> BTreeMap<&str, Vec<&Run>> {
        let mut jobs: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
        for run in &self.runs {
            jobs.entry(&run.job).or_default().push(run);
        }
        jobs
    }
}

/// Everything that must not have happened to these jobs, one line each; empty if all is well.
pub(crate) fn audit(picture: &Picture, jobs: &[String], allowed: &Allowed) -> Vec<String> {
    let by_job = picture.by_job();
    let known: BTreeSet<&str> = jobs.iter().map(String::as_str).collect();
    let mut wrong: Vec<String> =
        by_job.keys().filter(|job| !known.contains(*job)).map(|job| format!("{job}: nobody enqueued it")).collect();
    let mut graves: BTreeMap<&str, usize> = BTreeMap::new();
    for grave in &picture.dead {
        *graves.entry(&grave.job).or_default() += 1;
    }
    let underway: BTreeSet<&str> = picture.queued.iter().chain(&picture.scheduled).map(String::as_str).collect();
    for job in known {
        let runs = by_job.get(job).map_or(&[][..], Vec::as_slice);
        let (lives, mut told) = lives(runs);
        told.extend(between_lives(&lives, allowed));
        let through = lives.last().is_some_and(|life| life.last().ok);
        let graves = graves.get(job).copied().unwrap_or_default();
        if graves > 1 {
            told.push(format!("it lies in the DLQ {graves} times"));
        }
        if through && graves > 0 {
            told.push("it ran through, and lies in the DLQ".to_owned());
        }
        if !through && graves == 0 && !underway.contains(job) {
            told.push("it is lost".to_owned());
        }
        wrong.extend(told.into_iter().map(|what| format!("{job}: {what}; its runs: {}", shown(runs))));
    }
    wrong
}

/// A job's runs as lives, and what does not fit.
fn lives<'a>(runs: &[&'a Run]) -> (Vec<Life<'a>>, Vec<String>) {
    let mut lives: Vec<Life<'a>> = Vec::new();
    let mut wrong = Vec::new();
    for &run in runs {
        let before = lives.last().map(Life::last);
        // One entry handed out twice, as after a crash of its worker: the framework's affair, and still the same life.
        if let Some(before) = before
            && !run.entry.is_empty()
            && (run.entry == before.entry)
        {
            lives.last_mut().expect("it has a run").runs.push(run);
            continue;
        }
        if run.attempt == 0 || run.attempt == PUT_BACK_WITH_DEDUP {
            lives.push(Life { runs: vec![run] });
            continue;
        }
        if before.is_none_or(|before| before.ok || before.attempt + 1 != run.attempt) {
            wrong.push(format!("attempt {} does not follow from what was before", run.attempt));
        }
        match lives.last_mut() {
            Some(life) => life.runs.push(run),
            None => lives.push(Life { runs: vec![run] }),
        }
    }
    (lives, wrong)
}

/// What is wrong with how lives follow each other.
fn between_lives(lives: &[Life<'_>], allowed: &Allowed) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut retries = 0;
    for pair in lives.windows(2) {
        let (last, next) = (pair[0].last(), pair[1].runs[0]);
        if last.ok {
            wrong.push("it was put back after it had run through".to_owned());
        } else if last.attempt + 1 < allowed.max_attempts {
            wrong.push("it was put back before it was dead: two runs of one decision".to_owned());
        }
        if allowed.elsewhere.contains(&next.entry) {
            continue;
        }
        let needed = allowed.min_age.as_secs_f64() * allowed.backoff.powi(retries);
        // It is buried in the moment of its last run, by the same clock.
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52 ms")]
        let age = (put_back(next) - last.at) as f64 / 1000.0;
        if age < needed {
            wrong.push(format!("it was put back {age:.3} s after its death, and {needed:.3} s are needed"));
        }
        retries += 1;
    }
    if retries > i32::try_from(allowed.max_retries).unwrap_or(i32::MAX) {
        wrong.push(format!("it was retried {retries} times, and {} are allowed", allowed.max_retries));
    }
    wrong
}

/// When a life began: the time in the queue entry's id, which Redis gave it; the run itself comes later. Where a clock
/// was stepped back the id runs ahead of it.
fn put_back(first: &Run) -> i64 {
    let entry = first.entry.split_once('-').and_then(|(ms, _)| ms.parse().ok());
    entry.map_or(first.at, |entry: i64| entry.min(first.at))
}

fn shown(runs: &[&Run]) -> String {
    let one = |run: &&Run| format!("{}:{}{}@{}", run.at, run.attempt, if run.ok { "+" } else { "-" }, run.entry);
    runs.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `time:attempt+` or `time:attempt-`, and the queue entry after an `@` unless it has that time.
    fn runs(written: &str) -> Vec<Run> {
        let one = |written: &str| {
            let (at, rest) = written.split_once(':').unwrap();
            let (rest, entry) = rest.split_once('@').map_or((rest, format!("{at}-0")), |(r, e)| (r, e.to_owned()));
            let (attempt, ok) = (rest.trim_end_matches(['+', '-']), rest.ends_with('+'));
            let (attempt, at) = (attempt.parse().unwrap(), at.parse().unwrap());
            Run { job: "job".to_owned(), task: "send_email".to_owned(), attempt, ok, at, entry }
        };
        written.split_whitespace().map(one).collect()
    }

    fn allowed() -> Allowed {
        Allowed {
            min_age: Duration::from_secs(10),
            backoff: 1.0,
            max_retries: 2,
            max_attempts: 2,
            elsewhere: BTreeSet::new(),
        }
    }

    fn grave() -> Grave {
        Grave { entry: "1-0".to_owned(), job: "job".to_owned(), at: 0 }
    }

    /// The job lies in the DLQ unless it ran through.
    fn found(written: &str, allowed: &Allowed) -> Vec<String> {
        let runs = runs(written);
        let dead = if runs.last().is_some_and(|run| run.ok) { vec![] } else { vec![grave()] };
        let wrong = audit(&Picture { runs, dead, ..Picture::default() }, &["job".to_owned()], allowed);
        let what = |line: String| line.strip_prefix("job: ").unwrap().split("; its runs").next().unwrap().to_owned();
        wrong.into_iter().map(what).collect()
    }

    #[test]
    fn lives_in_order_pass() {
        for written in [
            "0:0+",
            "0:0- 500:1+",
            "0:0- 500:1-",
            "0:0- 500:1- 10500:0+",
            "0:0- 500:1- 10500:0- 11000:1- 21000:0- 21500:1-",
            // An entry handed out again after its worker died.
            "0:0- 500:1- 501:1-@500-0 10501:0+",
            "0:0-@7-0 1:0-@7-0 500:1-",
            // A job with a dedup key: buried at once when it fails again.
            "0:0- 500:1- 10500:1000000- 20500:1000000+",
        ] {
            assert_eq!(found(written, &allowed()), Vec::<String>::new(), "{written}");
        }
    }

    #[test]
    fn what_must_not_happen_is_told() {
        for (written, expected) in [
            ("0:0- 500:1- 10499:0+", "it was put back 9.999 s after its death, and 10.000 s are needed"),
            // The run came late, but the job was put back too early.
            ("0:0- 500:1- 12000:0+@9500-0", "it was put back 9.000 s after its death, and 10.000 s are needed"),
            (
                "0:0- 500:1- 10500:0- 11000:1- 20999:0+",
                "it was put back 9.999 s after its death, and 10.000 s are needed",
            ),
            (
                "0:0- 1:1- 20000:0- 20001:1- 40000:0- 40001:1- 60000:0- 60001:1-",
                "it was retried 3 times, and 2 are allowed",
            ),
            ("0:0- 500:1- 10500:0+ 30000:0+", "it was put back after it had run through"),
            ("0:0+ 500:1-", "attempt 1 does not follow from what was before"),
            ("0:1-", "attempt 1 does not follow from what was before"),
            ("0:0- 500:0-@700-0", "it was put back before it was dead: two runs of one decision"),
        ] {
            let found = found(written, &allowed());
            assert!(found.contains(&expected.to_owned()), "{written}: {found:?}");
        }
    }

    #[test]
    fn two_runs_of_one_decision_are_told_however_they_mix() {
        for written in [
            "0:0- 500:1- 10500:0- 10501:0-@10500-1 11000:1- 11001:1-@11000-1",
            "0:0- 500:1- 10500:0+ 10500:0+@10500-1",
            "0:0- 500:1- 10500:0- 10900:1- 11000:0-@10500-1 11400:1-",
        ] {
            assert!(!found(written, &allowed()).is_empty(), "{written}");
        }
        let single = Allowed { max_attempts: 1, ..allowed() };
        assert!(!found("0:0- 10000:0- 10001:0-@10000-1", &single).is_empty());
        assert!(!found("0:0- 10000:1000000- 10001:1000000-@10000-1", &single).is_empty());
    }

    #[test]
    fn the_age_that_is_needed_grows_with_the_retries() {
        let allowed = Allowed { backoff: 2.0, ..allowed() };
        assert_eq!(found("0:0- 0:1- 10000:0- 10000:1- 30000:0+", &allowed), Vec::<String>::new());
        assert_eq!(
            found("0:0- 0:1- 10000:0- 10000:1- 29999:0+", &allowed),
            ["it was put back 19.999 s after its death, and 20.000 s are needed"]
        );
    }

    #[test]
    fn what_somebody_else_put_back_counts_for_nobody() {
        let elsewhere = BTreeSet::from(["600-0".to_owned(), "900-0".to_owned()]);
        let allowed = Allowed { max_retries: 1, elsewhere, ..allowed() };
        let written = "0:0- 500:1- 600:0- 700:1- 900:0- 950:1- 10950:0+";
        assert_eq!(found(written, &allowed), Vec::<String>::new());
        assert_eq!(
            found(&format!("{written} 11000:0+@900-0"), &allowed).len(),
            1,
            "even they must not revive a done job"
        );
    }

    #[test]
    fn a_job_must_be_somewhere_and_only_once() {
        let job = "job".to_owned();
        let failing = Picture { runs: runs("0:0-"), ..Picture::default() };
        let through = Picture { runs: runs("0:0+"), ..Picture::default() };
        let picture = |of: &Picture, dead: &[Grave], queued: bool, scheduled: bool| Picture {
            dead: dead.to_vec(),
            queued: queued.then(|| job.clone()).into_iter().collect(),
            scheduled: scheduled.then(|| job.clone()).into_iter().collect(),
            ..of.clone()
        };
        for (name, picture, wrong) in [
            ("dead", picture(&failing, &[grave()], false, false), None),
            ("queued", picture(&failing, &[], true, false), None),
            ("scheduled", picture(&failing, &[], false, true), None),
            ("buried and not let go of yet", picture(&failing, &[grave()], true, false), None),
            ("nowhere", picture(&failing, &[], false, false), Some("it is lost")),
            ("never run", picture(&Picture::default(), &[], false, false), Some("it is lost")),
            ("never run yet", picture(&Picture::default(), &[], true, false), None),
            ("through", picture(&through, &[], false, false), None),
            ("through and not let go of yet", picture(&through, &[], true, false), None),
            (
                "through and dead",
                picture(&through, &[grave()], false, false),
                Some("it ran through, and lies in the DLQ"),
            ),
            ("twice dead", picture(&failing, &[grave(), grave()], false, false), Some("it lies in the DLQ 2 times")),
        ] {
            let found = audit(&picture, std::slice::from_ref(&job), &allowed());
            assert_eq!(found.len(), usize::from(wrong.is_some()), "{name}: {found:?}");
            assert!(wrong.is_none_or(|wrong| found[0].contains(wrong)), "{name}: {found:?}");
        }
        let stranger = audit(&failing, &[], &allowed());
        assert_eq!(stranger, ["job: nobody enqueued it"]);
    }

    #[test]
    fn retries_and_what_ran_through_are_counted() {
        let picture =
            Picture { runs: runs("0:0- 500:1- 10520:0-@10500-0 11000:1- 21000:0- 21500:1+"), ..Picture::default() };
        let retry = |number, died, put_back, ended, ok| Retry {
            job: "job".to_owned(),
            number,
            died,
            put_back,
            ended: Some(ended),
            ok,
        };
        let expected = [retry(1, 500, 10_500, 11_000, false), retry(2, 11_000, 21_000, 21_500, true)];
        assert_eq!(picture.retries(2), expected);
        let on_its_way = Picture { runs: runs("0:0- 500:1- 10500:0-"), ..Picture::default() };
        assert_eq!(on_its_way.retries(2)[0].ended, None);
        assert_eq!(picture.ran_through(), BTreeMap::from([("job", 1)]));
    }
}

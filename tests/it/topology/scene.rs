//! Workers, a receiver and two replicas of Sexton on a Redis that moves, and what must be true when it has.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use redis::aio::MultiplexedConnection;
use sexton::{
    clock::monotonic,
    demo::{
        job::Policy,
        worker::{Conduct, Seen},
    },
};

use crate::support::{
    SOON,
    audit::{Picture, audit},
    eventually,
    process::{Sexton, Stream},
    receiver::Receiver,
    stage::Terms,
    workers::{Crew, Hiring, QUICK},
};

/// The namespace of every scene.
pub(super) const NS: &str = "lrs";
/// Where workers write their runs: beside the namespace's other keys, so that all of it goes the same way.
const RUNS: &str = "{lrs}:test:runs";
/// Buried with the first failure, in one step with the line about the run.
const SINGLE: Policy = Policy { max_attempts: 1, ..QUICK };
/// How much may be under way at once, and how soon it comes back.
pub(super) const TERMS: Terms =
    Terms { min_age: 1.0, backoff: 1.0, max_backoff: 1.0, max_retries: 3, start: 20, per_second: 10_000 };

/// What came to pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    /// Deaths that the store knows of.
    pub(super) deaths: usize,
    /// Retries that the store knows of.
    pub(super) retries: usize,
    /// Runs that the workers remember and the store does not.
    pub(super) forgotten: usize,
}

/// The scene.
pub(super) struct Scene {
    pub(super) crew: Crew,
    pub(super) receiver: Receiver,
    pub(super) sextons: Vec<Sexton>,
    pub(super) jobs: Vec<String>,
    witness: Arc<Mutex<Vec<Seen>>>,
    next: u64,
}

impl Scene {
    /// Workers that find their Redis by `whereabouts`, and two replicas of Sexton at `smallage` (the section of the
    /// configuration), with a lease of this length. `smtp` is down.
    pub(super) async fn set(whereabouts: Arc<dyn Fn() -> String + Send + Sync>, smallage: &str, ttl: &str) -> Scene {
        let witness = Arc::new(Mutex::new(Vec::new()));
        let conduct = Conduct { one_step: true, witness: Some(Arc::clone(&witness)), ..Conduct::default() };
        let hiring = Hiring { workers: 2, policy: SINGLE, conduct };
        let crew = Crew::follow(whereabouts, NS, RUNS, &hiring);
        crew.dependencies.break_down("smtp");
        let receiver = Receiver::start().await;
        let config = format!(
            "sources: [{{name: orders, smallage: {smallage}}}]\n\
             hooks: [{{name: oncall, url: \"{}\", rate: unlimited, events: [\"job.*\"]}}]\n\
             http: {{listen: \"127.0.0.1:0\"}}\nlease: {{ttl: {ttl}}}\nsample_every: 200ms\n\
             outbox: {{cap: 1000000}}\nannounce_existing: true\nrules: [rules.yaml]\n",
            receiver.url()
        );
        let sextons = (0..2).map(|_| Sexton::run_with(&config, &[("rules.yaml", &TERMS.yaml())])).collect();
        Scene { crew, receiver, sextons, jobs: Vec::new(), witness, next: 0 }
    }

    /// Puts jobs on the queue.
    pub(super) async fn enqueue(&mut self, con: &mut MultiplexedConnection, count: u64) {
        let numbers = self.next..self.next + count;
        self.next += count;
        self.jobs.extend(self.crew.enqueue(con, "send_email", numbers).await);
    }

    /// Every run so far, by the workers' own memory.
    pub(super) fn seen(&self) -> Vec<Seen> {
        self.witness.lock().expect("nobody panics").clone()
    }

    /// Waits until so many runs of this kind have been made.
    pub(super) async fn runs(&self, what: &str, count: usize, of: impl Fn(&Seen) -> bool) {
        eventually(&format!("{count} runs: {what}"), Duration::from_secs(60), || async {
            (self.seen().iter().filter(|seen| of(seen)).count() >= count).then_some(())
        })
        .await;
    }

    /// Waits until every job has run through, or has spent what it is granted, by the store's own record.
    pub(super) async fn settles(&self, con: &mut MultiplexedConnection, within: Duration) -> Picture {
        self.crew.dependencies.mend("smtp");
        let deadline = monotonic() + within;
        loop {
            let picture = self.crew.picture(con).await;
            let open = self.open(&picture);
            if open.is_empty() {
                return picture;
            }
            assert!(monotonic() < deadline, "{} are not settled: {:?}", open.len(), &open[..open.len().min(5)]);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    fn open(&self, picture: &Picture) -> Vec<String> {
        let through = picture.ran_through();
        let dead: BTreeSet<&str> = picture.dead.iter().map(|grave| grave.job.as_str()).collect();
        let mut retried: BTreeMap<String, u32> = BTreeMap::new();
        for retry in picture.retries(SINGLE.max_attempts) {
            retried.insert(retry.job, retry.number);
        }
        let spent = |job: &str| retried.get(job).is_some_and(|retries| *retries >= TERMS.max_retries);
        let mut open: Vec<String> = picture.queued.clone();
        let settled =
            |job: &&String| through.contains_key(job.as_str()) || dead.contains(job.as_str()) && spent(job.as_str());
        open.extend(self.jobs.iter().filter(|job| !settled(job)).cloned());
        open
    }

    /// Fails unless all is well by the store's own record, and by the workers' but for what the store has lost.
    pub(super) async fn passes(&self, picture: &Picture) -> Passed {
        // What a Redis forgets it forgets from a moment on: what it still knows must fit together.
        let wrong = audit(picture, &self.jobs, &TERMS.allowed(SINGLE));
        assert!(
            wrong.is_empty(),
            "{} of {} jobs:\n{}",
            wrong.len(),
            self.jobs.len(),
            wrong[..wrong.len().min(20)].join("\n")
        );

        // By what the workers remember: a job may have been run once more for each run that the store has forgotten.
        let known: BTreeSet<(&str, &str)> =
            picture.runs.iter().map(|run| (run.job.as_str(), run.entry.as_str())).collect();
        let seen = self.seen();
        let mut lives: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for run in &seen {
            lives.entry(&run.job).or_default().insert(&run.entry);
        }
        let (mut forgotten, mut beyond) = (0, 0);
        for (job, entries) in &lives {
            let lost = entries.iter().filter(|entry| !known.contains(&(*job, **entry))).count();
            let most = 1 + TERMS.max_retries as usize;
            assert!(entries.len() <= most + lost, "{job} has run as {entries:?}, of which {lost} are forgotten");
            forgotten += lost;
            beyond += usize::from(entries.len() > most);
        }
        assert!(beyond <= forgotten, "{beyond} jobs ran more often than they may, {forgotten} runs are forgotten");

        // Every death that the store knows of was told.
        let mut died: BTreeMap<&str, usize> = BTreeMap::new();
        for run in picture.runs.iter().filter(|run| !run.ok) {
            *died.entry(&run.job).or_default() += 1;
        }
        let deaths: usize = died.values().sum();
        let told = |missing: &mut Vec<String>| {
            let mut told: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
            for request in self.receiver.requests() {
                let body = request.json();
                if body["type"] == "job.dead" {
                    let text = |field: &str| body["data"][field].as_str().unwrap_or_default().to_owned();
                    told.entry(text("job_id")).or_default().insert(text("entry_id"));
                }
            }
            missing.clear();
            missing.extend(
                died.iter()
                    .filter(|(job, deaths)| told.get(**job).map_or(0, BTreeSet::len) < **deaths)
                    .map(|(job, _)| (*job).to_owned()),
            );
            told.values().map(BTreeSet::len).sum::<usize>()
        };
        let mut missing = Vec::new();
        let deadline = monotonic() + SOON * 2;
        let all_told = loop {
            let all = told(&mut missing);
            if missing.is_empty() {
                break all;
            }
            assert!(monotonic() < deadline, "{} jobs' deaths were not told: {:?}", missing.len(), missing.first());
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        assert!(all_told >= deaths, "{all_told} deaths are told, of {deaths}");
        let retries = picture.retries(SINGLE.max_attempts).len();
        Passed { deaths, retries, forgotten }
    }

    /// How often the replicas have found that the store had lost something.
    pub(super) async fn losses(&self) -> f64 {
        let mut losses = 0.0;
        for sexton in &self.sextons {
            losses += sexton.http().await.metric("sexton_store_losses_total", &[]).await.unwrap_or_default();
        }
        losses
    }

    /// Whether any replica has said this.
    pub(super) fn said(&self, text: &str) -> bool {
        let shown = |sexton: &Sexton| sexton.process.shown(Stream::Err).iter().any(|line| line.contains(text));
        self.sextons.iter().any(shown)
    }
}

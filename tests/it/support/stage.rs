//! The whole loop on stage: a private Redis, workers that write down every run, a receiver, and Sexton with a rule.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use redis::{AsyncCommands as _, aio::MultiplexedConnection};
use sexton::{demo::job::Policy, letter::Millis};

use super::{
    SOON,
    audit::{Allowed, Picture, Run, audit},
    eventually,
    process::Sexton,
    receiver::Receiver,
    redis::{Options, Redis},
    workers::{Crew, Hiring, graves},
    yard,
};

/// The namespace of every stage.
pub(crate) const NS: &str = yard::NS;
/// The rule's name.
pub(crate) const RULE: &str = "flaky";

/// The terms of the one rule, for every task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Seconds since the death.
    pub(crate) min_age: f64,
    /// What it grows by.
    pub(crate) backoff: f64,
    /// Seconds at most, and the longest pause.
    pub(crate) max_backoff: f64,
    /// Retries of one job.
    pub(crate) max_retries: u32,
    /// Canaries.
    pub(crate) start: u32,
    /// Retries a second.
    pub(crate) per_second: u32,
}

/// One second, no more with every retry, and such a pace that something is always under way: also of a leader that
/// lives for a moment only.
pub(crate) const HECTIC: Terms =
    Terms { min_age: 1.0, backoff: 1.0, max_backoff: 1.0, max_retries: 3, start: 20, per_second: 10_000 };

impl Terms {
    /// The rules file.
    pub(crate) fn yaml(self) -> String {
        let ms = |seconds: f64| format!("{:.0}ms", seconds * 1000.0);
        let Terms { backoff, max_retries, start, per_second, .. } = self;
        format!(
            "retry: [{{name: {RULE}, match: {{}}, min_age: {}, backoff: {backoff}, max_backoff: {}, \
             max_retries: {max_retries}, pace: {{start: {start}, per_second: {per_second}, max_in_flight: 500}}}}]\n",
            ms(self.min_age),
            ms(self.max_backoff)
        )
    }

    /// What an audit has to hold the workers' log against.
    pub(crate) fn allowed(self, policy: Policy) -> Allowed {
        Allowed {
            min_age: Duration::from_secs_f64(self.min_age),
            backoff: self.backoff,
            max_retries: self.max_retries,
            max_attempts: policy.max_attempts,
            elsewhere: BTreeSet::new(),
        }
    }
}

/// The stage. Sexton itself is not on it yet.
#[derive(Debug)]
pub(crate) struct Stage {
    /// The server.
    pub(crate) redis: Redis,
    /// A connection of the test's own.
    pub(crate) con: MultiplexedConnection,
    /// The workers.
    pub(crate) crew: Crew,
    /// Is told everything about jobs.
    pub(crate) receiver: Receiver,
    /// Every job so far.
    pub(crate) jobs: Vec<String>,
    /// The audit's terms.
    pub(crate) allowed: Allowed,
    terms: Terms,
    policy: Policy,
    next: u64,
}

impl Stage {
    /// With nothing to do yet, and `smtp` down.
    pub(crate) async fn set(options: Options, hiring: &Hiring, terms: Terms) -> Stage {
        let redis = Redis::with(Options { tcp: true, ..options }).await;
        let con = redis.connect().await;
        let crew = Crew::start(&redis, NS, hiring);
        crew.dependencies.break_down("smtp");
        Stage {
            con,
            crew,
            receiver: Receiver::start().await,
            jobs: Vec::new(),
            allowed: terms.allowed(hiring.policy),
            terms,
            policy: hiring.policy,
            next: 0,
            redis,
        }
    }

    fn config(&self) -> String {
        format!(
            "sources: [{{name: orders, smallage: {{url: \"{}\", namespace: {NS}}}}}]\n\
             hooks: [{{name: oncall, url: \"{}\", rate: unlimited, events: [\"job.*\", \"alert.*\"]}}]\n\
             http: {{listen: \"127.0.0.1:0\"}}\nlease: {{ttl: 500ms}}\nsample_every: 200ms\n\
             announce_existing: true\nrules: [rules.yaml]\n",
            self.redis.url(),
            self.receiver.url()
        )
    }

    /// A replica.
    pub(crate) fn sexton(&self) -> Sexton {
        self.sexton_off_time(0)
    }

    /// A replica on a pod whose clock is off by so many seconds.
    pub(crate) fn sexton_off_time(&self, seconds: i64) -> Sexton {
        Sexton::run_off_time(&self.config(), &[("rules.yaml", &self.terms.yaml())], seconds)
    }

    /// A replica that also has these alert rules.
    pub(crate) fn sexton_with_alerts(&self, alerts: &str) -> Sexton {
        let rules = format!("{}{alerts}", self.terms.yaml());
        Sexton::run_with(&self.config(), &[("rules.yaml", &rules)])
    }

    /// Puts jobs on the queue.
    pub(crate) async fn enqueue(&mut self, task: &str, count: u64) {
        let numbers = self.next..self.next + count;
        self.next += count;
        self.jobs.extend(self.crew.enqueue(&mut self.con, task, numbers).await);
    }

    /// The same with dedup keys; returns the jobs' numbers.
    pub(crate) async fn enqueue_with_dedup(&mut self, task: &str, count: u64) -> std::ops::Range<u64> {
        let numbers = self.next..self.next + count;
        self.next += count;
        self.jobs.extend(self.crew.enqueue_with_dedup(&mut self.con, task, numbers.clone()).await);
        numbers
    }

    /// Breaks `smtp`, and waits until so many more jobs have died of it.
    pub(crate) async fn wave(&mut self, count: u64) {
        self.crew.dependencies.break_down("smtp");
        let known = self.jobs.len();
        self.enqueue("send_email", count).await;
        let doomed: BTreeSet<&String> = self.jobs[known..].iter().collect();
        eventually("a wave of jobs has died", SOON, || {
            let (stage, doomed, mut con) = (&*self, &doomed, self.con.clone());
            async move {
                let picture = stage.crew.picture(&mut con).await;
                let last = |run: &&Run| doomed.contains(&run.job) && run.attempt + 1 >= stage.policy.max_attempts;
                (picture.runs.iter().filter(last).count() >= doomed.len()).then_some(())
            }
        })
        .await;
    }

    /// Waits until there are so many entries in the DLQ.
    pub(crate) async fn dead(&self, entries: usize) {
        eventually(&format!("{entries} are dead"), SOON, || {
            let mut con = self.con.clone();
            async move { (graves(&mut con, NS).await == entries).then_some(()) }
        })
        .await;
    }

    /// What has happened and where everything is.
    pub(crate) async fn picture(&mut self) -> Picture {
        self.crew.picture(&mut self.con).await
    }

    /// Waits until so many jobs have run through.
    pub(crate) async fn through(&self, jobs: u64, within: Duration) {
        eventually(&format!("{jobs} jobs have run through"), within, || async {
            (self.crew.done() >= jobs).then_some(())
        })
        .await;
    }

    /// Mends what is down, waits until every job has run through or has spent its allowance, and audits what happened.
    pub(crate) async fn settles(&mut self, within: Duration) -> Picture {
        self.crew.dependencies.mend("smtp");
        let con = self.redis.connect().await;
        self.con = con.clone();
        let settled = eventually("every job has come to its end", within, || {
            let (stage, mut con) = (&*self, con.clone());
            async move {
                let picture = stage.crew.picture(&mut con).await;
                stage.is_settled(&picture).then_some(picture)
            }
        });
        let picture = settled.await;
        self.passes(&picture);
        picture
    }

    fn is_settled(&self, picture: &Picture) -> bool {
        let through = picture.ran_through();
        let mut retried: BTreeMap<String, u32> = BTreeMap::new();
        for retry in picture.retries(self.policy.max_attempts) {
            retried.insert(retry.job, retry.number);
        }
        let dead: BTreeSet<&str> = picture.dead.iter().map(|grave| grave.job.as_str()).collect();
        picture.queued.is_empty()
            && picture.scheduled.is_empty()
            && self.jobs.iter().all(|job| {
                let spent = retried.get(job).is_some_and(|retries| *retries >= self.terms.max_retries);
                through.contains_key(job.as_str()) || dead.contains(job.as_str()) && spent
            })
    }

    /// Fails unless this passes the audit.
    pub(crate) fn passes(&self, picture: &Picture) {
        let wrong = audit(picture, &self.jobs, &self.allowed);
        assert!(wrong.is_empty(), "{} of {} jobs:\n{}", wrong.len(), self.jobs.len(), wrong.join("\n"));
    }

    /// Fails unless the ledger has counted every retry that the workers' log shows, and put each on the outbox once.
    pub(crate) async fn ledger_agrees(&mut self, picture: &Picture) {
        let mut made: BTreeMap<String, u32> = BTreeMap::new();
        for retry in picture.retries(self.policy.max_attempts) {
            made.insert(retry.job, retry.number);
        }
        let mut counted = BTreeMap::new();
        for job in made.keys() {
            let retries: u32 = self.con.hget(format!("{{{NS}}}:sexton:job:{job}"), "retries").await.expect("a count");
            counted.insert(job.clone(), retries);
        }
        assert_eq!(counted, made, "the ledger's counts, and the workers' log");
        let mut announced: BTreeMap<String, u32> = BTreeMap::new();
        for (kind, data) in super::ledger::outbox(&mut self.con, NS).await {
            if kind == "job.retried" {
                *announced.entry(data["job_id"].as_str().expect("it names the job").to_owned()).or_default() += 1;
            }
        }
        assert_eq!(announced, made, "the outbox, and the workers' log");
    }

    /// How often the ledger's audit log says that this was done or found.
    pub(crate) async fn logged(&self, what: &str) -> usize {
        let lines = yard::open(&self.redis).audit(None, None, 10_000).await.expect("Redis is there");
        lines.iter().filter(|line| line.what == what).count()
    }

    /// Makes `smtp` fail and work in turn, from now on until what is returned is dropped.
    pub(crate) fn breathing(&self, rhythm: Rhythm) -> Breath {
        let dependencies = self.crew.dependencies.clone();
        Breath(tokio::spawn(async move {
            loop {
                dependencies.break_down("smtp");
                tokio::time::sleep(rhythm.down).await;
                dependencies.mend("smtp");
                tokio::time::sleep(rhythm.up).await;
            }
        }))
    }

    /// The time by Redis.
    pub(crate) async fn now(&mut self) -> Millis {
        Millis(super::workers::now(&mut self.con).await)
    }
}

/// How long a dependency is down, and works, in turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rhythm {
    down: Duration,
    up: Duration,
}

/// Outages: whole groups fail, are held, and come back.
pub(crate) const OUTAGES: Rhythm = Rhythm { down: Duration::from_millis(400), up: Duration::from_millis(300) };
/// Fewer than half of the runs fail, and fewer of the lives: groups go on mostly, and who dies again is retried as soon
/// as it is old enough.
pub(crate) const FLUTTER: Rhythm = Rhythm { down: Duration::from_millis(50), up: Duration::from_millis(70) };

/// A dependency that comes and goes; it stays as it is when this is dropped.
#[derive(Debug)]
pub(crate) struct Breath(tokio::task::JoinHandle<()>);

impl Drop for Breath {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Which of these leads, once one does.
pub(crate) async fn leader(replicas: &[Sexton]) -> usize {
    eventually("a replica leads", SOON, || async {
        for (n, replica) in replicas.iter().enumerate() {
            if replica.http().await.metric("sexton_leader", &[]).await == Some(1.0) {
                return Some(n);
            }
        }
        None
    })
    .await
}

//! The demonstration's story, act by act: jobs run, a dependency breaks, jobs die, the line rises, a storm comes, all is
//! counted.

use std::{
    collections::BTreeSet,
    io::{self, Read as _, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use redis::{AsyncCommands as _, aio::MultiplexedConnection};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::{
    NAMESPACE, QUEUE, SINGLES_PER_SECOND,
    job::Dependencies,
    page::{Look, Page},
    receiver::Arrival,
    worker::{Tally, dlq_stream, enqueue, queue_stream},
};
use crate::{
    clock::monotonic,
    event::{Alert, Digest, EventType, JobDead},
};

/// How long jobs run before smtp breaks, and again after it is mended.
const PEACE: Duration = Duration::from_secs(4);
/// How long smtp is down before a bug shows, and from then to the storm.
const TROUBLE: Duration = Duration::from_secs(4);
/// Between two rounds of jobs.
const ROUND: Duration = Duration::from_millis(500);
/// The tasks of a round.
const TASKS: [&str; 3] = ["send_email", "charge_card", "resize_image"];
/// Jobs in the storm.
const STORM: u64 = 2_000;
/// How long to wait for what comes at once.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at something.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// For one scrape.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(5);
/// The metrics shown in the middle.
const OF_INTEREST: [&str; 7] = [
    "sexton_leader",
    "sexton_jobs_dead_total",
    "sexton_dlq_entries",
    "sexton_dlq_oldest_timestamp_seconds",
    "sexton_alert_firing",
    "sexton_hook_backlog",
    "sexton_hook_deliveries_total",
];

/// The story as it goes.
pub(super) struct Story<W> {
    pub(super) page: Page<W>,
    pub(super) con: MultiplexedConnection,
    pub(super) dependencies: Dependencies,
    pub(super) worker: Arc<Tally>,
    pub(super) arrivals: mpsc::Receiver<Arrival>,
    pub(super) sexton: SocketAddr,
    pub(super) told: Told,
    /// Incidents that fire.
    pub(super) firing: BTreeSet<String>,
}

/// What the receiver was told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    /// Deaths in an event of their own.
    single: u64,
    /// Digests.
    digests: u64,
    /// Deaths in digests.
    folded: u64,
    /// Incidents that are over.
    resolved: u64,
    /// Events without a valid signature.
    unsigned: u64,
}

impl Told {
    fn deaths(self) -> u64 {
        self.single + self.folded
    }
}

/// The body of an event in the standard form.
#[derive(Debug, Serialize, Deserialize)]
struct Body<D> {
    #[serde(rename = "type")]
    kind: String,
    timestamp: String,
    data: D,
}

impl<W: Write> Story<W> {
    /// From the first job to the summary.
    pub(super) async fn tell(&mut self) -> anyhow::Result<()> {
        let scrape = format!("Look for yourself while it runs: curl http://{}/metrics", self.sexton);
        self.page.line(Look::Faint, scrape)?;
        self.until_it_leads().await?;

        self.page.line(Look::Act, "Jobs run.")?;
        let next = self.jobs_for(PEACE, 0, &TASKS).await?;
        self.page.line(Look::Good, format!("{} jobs ran through, none died.", self.worker.done()))?;

        self.page.line(Look::Bad, "smtp breaks. Every send_email fails, is tried again twice, and is buried.")?;
        self.dependencies.break_down("smtp");
        let next = self.jobs_for(TROUBLE, next, &TASKS).await?;
        self.page
            .line(Look::Act, "Meanwhile an order without line items: a bug, and no mending of smtp will help it.")?;
        enqueue(&mut self.con, NAMESPACE, QUEUE, "parse_order", 4711..4712).await?;
        let next = self.jobs_for(TROUBLE, next, &TASKS).await?;

        let storm = format!(
            "A newsletter goes to {} people: a storm. The hook has `rate: {SINGLES_PER_SECOND}/s`; the rest is folded.",
            grouped(STORM)
        );
        self.page.line(Look::Bad, storm)?;
        enqueue(&mut self.con, NAMESPACE, QUEUE, "send_email", next..next + STORM).await?;
        self.until_counts_agree().await?;
        self.page.line(Look::Act, "What Prometheus sees at /metrics:")?;
        self.show_metrics().await?;

        self.page.line(Look::Good, "smtp is mended. Jobs run through again.")?;
        self.dependencies.mend("smtp");
        let before = self.worker.done();
        self.jobs_for(PEACE, next + STORM, &TASKS).await?;
        let counts = self.until_counts_agree().await?;
        self.page.line(Look::Good, format!("{} more jobs ran through.", self.worker.done() - before))?;
        self.until_the_alert_is_over().await?;
        self.sum_up(counts)
    }

    /// Puts a job of each task on the queue every round, and tells what arrives meanwhile.
    async fn jobs_for(&mut self, duration: Duration, first: u64, tasks: &[&str]) -> anyhow::Result<u64> {
        let until = monotonic() + duration;
        let mut number = first;
        while monotonic() < until {
            for task in tasks {
                enqueue(&mut self.con, NAMESPACE, QUEUE, task, number..number + 1).await?;
                number += 1;
            }
            self.listen(ROUND).await?;
        }
        Ok(number)
    }

    /// Tells what arrives in the next while.
    async fn listen(&mut self, duration: Duration) -> anyhow::Result<()> {
        let pause = tokio::time::sleep(duration);
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => return Ok(()),
                arrival = self.arrivals.recv() => self.arrived(&arrival.context("the receiver has ended")?)?,
            }
        }
    }

    async fn until_it_leads(&mut self) -> anyhow::Result<()> {
        let deadline = monotonic() + PATIENCE;
        while sum(&self.scrape().await.unwrap_or_default(), "sexton_leader") != 1 {
            anyhow::ensure!(monotonic() < deadline, "Sexton has not begun to lead within {PATIENCE:?}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Waits until no job is on its way, and the DLQ, the receiver and the metrics say the same.
    async fn until_counts_agree(&mut self) -> anyhow::Result<Counts> {
        let deadline = monotonic() + PATIENCE;
        loop {
            self.listen(LOOK_EVERY).await?;
            let waiting: u64 = self.con.xlen(queue_stream(NAMESPACE, QUEUE)).await?;
            let scheduled: u64 = self.con.zcard(format!("{{{NAMESPACE}}}:sched")).await?;
            let entries = self.con.xlen(dlq_stream(NAMESPACE)).await?;
            let metrics = self.scrape().await?;
            let [counted, gauged] = ["sexton_jobs_dead_total", "sexton_dlq_entries"].map(|name| sum(&metrics, name));
            let counts = Counts { entries, told: self.told.deaths(), counted, gauged };
            if waiting == 0 && scheduled == 0 && counts.agree() {
                return Ok(counts);
            }
            anyhow::ensure!(
                monotonic() < deadline,
                "the counts do not agree within {PATIENCE:?}: {counts:?}, {waiting} jobs waiting, {scheduled} scheduled"
            );
        }
    }

    /// Waits until an alert has fired and none does any more.
    async fn until_the_alert_is_over(&mut self) -> anyhow::Result<()> {
        let deadline = monotonic() + PATIENCE;
        while self.told.resolved == 0 || !self.firing.is_empty() {
            anyhow::ensure!(monotonic() < deadline, "the alert has not fired and ended within {PATIENCE:?}");
            self.listen(LOOK_EVERY).await?;
        }
        Ok(())
    }

    /// The metrics as they are now.
    async fn scrape(&self) -> anyhow::Result<String> {
        let address = self.sexton;
        let text = tokio::task::spawn_blocking(move || get_metrics(address)).await.context("the scrape panicked")?;
        text.context("cannot scrape Sexton's metrics")
    }

    async fn show_metrics(&mut self) -> anyhow::Result<()> {
        let text = self.scrape().await?;
        for line in text.lines() {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            if OF_INTEREST.contains(&name) && !line.ends_with(" 0") {
                self.page.block(Look::Plain, line)?;
            }
        }
        Ok(())
    }

    /// Tells one event.
    fn arrived(&mut self, arrival: &Arrival) -> anyhow::Result<()> {
        let kind = arrival.body["type"].as_str().unwrap_or_default().to_owned();
        if let Some(complaint) = &arrival.complaint {
            self.told.unsigned += 1;
            self.page.line(Look::Bad, format!("{kind}  REFUSED, its signature is wrong: {complaint}"))?;
            return Ok(());
        }
        if arrival.again {
            self.page.line(Look::Faint, format!("{kind}  seen before under the same webhook-id, not counted again"))?;
            return Ok(());
        }
        match EventType::parse(&kind) {
            Some(EventType::JobDead) => {
                let body: Body<JobDead> =
                    Deserialize::deserialize(&arrival.body).context("a job.dead is not in form")?;
                self.told.single += 1;
                if self.told.single == 1 {
                    self.page
                        .line(Look::Plain, "A job has died, and the receiver is told. Signature good. The body:")?;
                    self.page.block(Look::Plain, &serde_json::to_string_pretty(&body)?)?;
                } else {
                    self.page.line(Look::Plain, death(&body.data))?;
                }
            }
            Some(EventType::DlqDigest) => {
                let body: Body<Digest> = Deserialize::deserialize(&arrival.body).context("a digest is not in form")?;
                self.told.digests += 1;
                self.told.folded += body.data.counts.deaths;
                self.page.line(Look::Act, digest(&body.data))?;
            }
            Some(EventType::AlertFiring) => {
                let alert = alert(arrival)?;
                self.page.line(
                    Look::Bad,
                    format!("alert.firing    {}, {}: {}", alert.alert, alert.severity, alert.summary),
                )?;
                self.firing.insert(alert.incident);
            }
            Some(EventType::AlertResolved) => {
                let alert = alert(arrival)?;
                self.page.line(Look::Good, format!("alert.resolved  {}", alert.summary))?;
                self.told.resolved += u64::from(self.firing.remove(&alert.incident));
            }
            _ => self.page.line(Look::Plain, kind)?,
        }
        Ok(())
    }

    fn sum_up(&mut self, counts: Counts) -> anyhow::Result<()> {
        let told = self.told;
        self.page.line(Look::Act, "In the end:")?;
        let digests = if told.digests == 1 { "1 digest".to_owned() } else { format!("{} digests", told.digests) };
        let how = format!("{} alone, {} in {digests}", grouped(told.single), grouped(told.folded));
        for (what, count, note) in [
            ("entries in the DLQ", counts.entries, String::new()),
            ("deaths told to the receiver", counts.told, format!("  ({how})")),
            ("sexton_jobs_dead_total", counts.counted, String::new()),
            ("sexton_dlq_entries", counts.gauged, String::new()),
        ] {
            self.page.block(Look::Plain, &format!("{what:<28}{:>7}{note}", grouped(count)))?;
        }
        anyhow::ensure!(told.unsigned == 0, "{} events came without a valid signature", told.unsigned);
        self.page.line(Look::Good, "All agree, and every signature was good.")?;
        let next = "To watch your own workers: sexton run --smallage redis://… --namespace lrs\n\
                    To look at what died there: sexton ls, sexton show ENTRY, sexton stats, sexton alerts";
        self.page.block(Look::Faint, next)?;
        Ok(())
    }
}

/// The same number seen from four sides.
#[derive(Clone, Copy, Debug)]
struct Counts {
    entries: u64,
    told: u64,
    counted: u64,
    gauged: u64,
}

impl Counts {
    fn agree(self) -> bool {
        [self.told, self.counted, self.gauged].iter().all(|count| *count == self.entries)
    }
}

/// What an alert's event says.
fn alert(arrival: &Arrival) -> anyhow::Result<Alert> {
    let body: Body<Alert> = Deserialize::deserialize(&arrival.body).context("an alert is not in form")?;
    Ok(body.data)
}

/// One death in a line.
fn death(letter: &JobDead) -> String {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let [task, kind, message] = [text(&letter.task), text(&letter.error.kind), text(&letter.error.message)];
    format!("job.dead    {task}  {kind}: {message}  ({} attempts)", letter.attempts)
}

/// One digest in a line.
fn digest(digest: &Digest) -> String {
    let groups = digest.groups.iter().map(|group| {
        let [task, kind] = [&group.task, &group.error.kind].map(|part| part.clone().unwrap_or_default());
        format!("{} × {task} {kind}", grouped(group.counts.deaths))
    });
    let groups: Vec<String> = groups.take(2).collect();
    format!("dlq.digest  {} deaths in one event: {}", grouped(digest.counts.deaths), groups.join(", "))
}

/// The sum of all series of a metric; 0 if there is none.
fn sum(exposition: &str, name: &str) -> u64 {
    let values = exposition.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        (series.split('{').next() == Some(name)).then(|| value.parse::<u64>().ok())?
    });
    values.sum()
}

/// A plain `GET /metrics`; the body.
fn get_metrics(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, SCRAPE_TIMEOUT)?;
    stream.set_read_timeout(Some(SCRAPE_TIMEOUT))?;
    stream.set_write_timeout(Some(SCRAPE_TIMEOUT))?;
    // HTTP/1.0: the body ends with the connection.
    write!(stream, "GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((_, body)) => Ok(body.to_owned()),
        None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "no whole answer")),
    }
}

/// A number as people write it: `12,345`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, expected) in [(0, "0"), (999, "999"), (1_000, "1,000"), (12_345_678, "12,345,678")] {
            assert_eq!(grouped(number), expected);
        }
    }

    #[test]
    fn a_metric_is_summed_over_its_series() {
        let text = "# TYPE a counter\na{task=\"x y\"} 2\na{task=\"z\"} 3\na_b 9\nc 7\n";
        assert_eq!(["a", "c", "d"].map(|name| sum(text, name)), [5, 7, 0]);
    }
}

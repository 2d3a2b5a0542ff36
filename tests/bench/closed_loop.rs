//! A thousand jobs die because their dependency is down, and come back when it is mended: how many retries are wasted,
//! and how long it takes. Sexton against two loops that learn nothing, each on a Redis of its own, side by side.
//!
//! The loops without a memory know no allowance either: with one they would have spent it long before the mend, and
//! their jobs would stay dead.

use std::{collections::BTreeSet, time::Duration};

use comfy_table::{Table, presets::ASCII_MARKDOWN};
use redis::{Script, aio::MultiplexedConnection};
use sexton::demo::{
    job::Policy,
    worker::{dlq_stream, queue_stream},
};

use super::{
    Figure,
    support::{
        SOON,
        audit::{Allowed, Picture, Retry, audit},
        eventually,
        process::Sexton,
        redis::{Options, Redis},
        workers::{Crew, Hiring, QUEUE, graves, now},
    },
};

/// How long the dependency is down, unless told otherwise.
pub(super) const DOWN: Duration = Duration::from_secs(120);
const NS: &str = "lrs";
const JOBS: u64 = 1_000;
const MIN_AGE: Duration = Duration::from_secs(10);
/// What the fixed rate is.
const PER_SECOND: u32 = 5;
/// How long jobs may take to run through after the mend before they count as left dead.
const PATIENCE: Duration = Duration::from_secs(600);
/// A line of the table of retries.
const LINE_MS: i64 = 10_000;
const ATTEMPTS: Policy =
    Policy { max_attempts: 3, initial_backoff: Duration::from_millis(100), max_backoff: Duration::from_millis(800) };
/// Sexton's rule: defaults, apart from the age.
const RULES: &str = "retry: [{name: flaky, match: {task: [\"send_*\"]}, min_age: 10s}]\n";

/// Puts entries back: their fields without what burial added, `attempt` 0, on the queue they came from.
const PUT_BACK: &str = "
for _, id in ipairs(ARGV) do
  local entry = redis.call('XRANGE', KEYS[1], id, id)[1]
  local fields = {}
  for i = 1, #entry[2], 2 do
    local name = entry[2][i]
    if string.sub(name, 1, 4) ~= 'dlq_' then
      fields[#fields + 1] = name
      fields[#fields + 1] = name == 'attempt' and '0' or entry[2][i + 1]
    end
  end
  redis.call('XADD', KEYS[2], '*', unpack(fields))
  redis.call('XDEL', KEYS[1], id)
end";

/// Who puts the dead back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Sexton,
    /// Everything that is old enough, as soon as it is.
    Everything,
    /// One at a time, so many a second, of what is old enough.
    FixedRate,
}

/// What came of it.
struct Told {
    retries: Vec<Retry>,
    /// The first death, and the mend, in milliseconds by Redis.
    began: i64,
    mended: i64,
    /// What the audit found.
    wrong: Vec<String>,
    still_dead: usize,
}

impl Told {
    /// Retries made while the dependency was down that led back into the DLQ.
    fn wasted(&self) -> usize {
        self.retries.iter().filter(|retry| retry.put_back < self.mended && !retry.ok).count()
    }

    /// From the mend until the last job ran through.
    fn through(&self) -> Duration {
        let last = self.retries.iter().filter(|retry| retry.ok).filter_map(|retry| retry.ended).max();
        from_ms(last.unwrap_or(i64::MAX) - self.mended)
    }

    /// From the mend until nothing but pace was in the way: the first retry after it, and the age of those that came
    /// back from the dead last.
    fn pause(&self) -> Duration {
        let first = self.retries.iter().map(|retry| retry.put_back).filter(|at| *at >= self.mended).min();
        let old_enough = self.retries.iter().filter(|retry| retry.ok).map(|retry| {
            let needed = MIN_AGE * 2_u32.saturating_pow(retry.number - 1);
            retry.died + i64::try_from(needed.as_millis()).unwrap_or(i64::MAX)
        });
        from_ms(first.into_iter().chain(old_enough).max().unwrap_or(self.mended) - self.mended)
    }

    /// For each line of the table: retries made in it, and the most that were under way at a time.
    fn curve(&self) -> Vec<(usize, usize)> {
        let mut moments: Vec<(i64, bool)> = Vec::new();
        for retry in &self.retries {
            moments.push((retry.put_back, true));
            moments.extend(retry.ended.map(|ended| (ended, false)));
        }
        moments.sort_unstable();
        let mut curve = Vec::new();
        let mut in_flight: usize = 0;
        for (at, begins) in moments {
            let line = usize::try_from((at - self.began).div_euclid(LINE_MS)).unwrap_or_default();
            while curve.len() <= line {
                curve.push((0, in_flight));
            }
            in_flight = if begins { in_flight + 1 } else { in_flight.saturating_sub(1) };
            let (made, most) = &mut curve[line];
            *made += usize::from(begins);
            *most = in_flight.max(*most);
        }
        curve
    }
}

pub(super) async fn figures(down: Duration) -> Vec<Figure> {
    let (sexton, everything, fixed_rate) =
        tokio::join!(play(Who::Sexton, down), play(Who::Everything, down), play(Who::FixedRate, down));
    print_curves(&sexton, &everything, &fixed_rate);
    let both = |of: &dyn Fn(&Told) -> String| {
        format!("everything at once: {}; {PER_SECOND} a second: {}", of(&everything), of(&fixed_rate))
    };
    let through = |told: &Told| match told.still_dead {
        0 => format!("{:.0} s", told.through().as_secs_f64()),
        dead => format!("{dead} still dead"),
    };
    let (took, pause) = (sexton.through(), sexton.pause());
    let beyond = took.saturating_sub(pause);
    let wrong = sexton.wrong.len();
    vec![
        Figure {
            what: format!("retries wasted on 1,000 dead jobs, dependency down for {} s", down.as_secs()),
            measured: sexton.wasted().to_string(),
            bare: both(&|told| told.wasted().to_string()),
            result: sexton.wasted().to_string(),
            wanted: "≤ 10",
            reached: sexton.wasted() <= 10,
        },
        Figure {
            what: "after the mend, until all 1,000 ran through".to_owned(),
            measured: format!("{}, of which pause and age {:.0} s", through(&sexton), pause.as_secs_f64()),
            bare: both(&through),
            result: format!("{:.1} s beyond", beyond.as_secs_f64()),
            wanted: "≤ 30 s beyond pause and age",
            reached: sexton.still_dead == 0 && beyond <= Duration::from_secs(30),
        },
        Figure {
            what: "retries in all to raise 1,000 jobs".to_owned(),
            measured: sexton.retries.len().to_string(),
            bare: both(&|told| told.retries.len().to_string()),
            result: sexton.retries.len().to_string(),
            wanted: "≤ 1,010",
            reached: sexton.retries.len() <= 1_010,
        },
        Figure {
            what: "jobs lost, left dead, retried too early, too often or twice at once".to_owned(),
            measured: (wrong + sexton.still_dead).to_string(),
            bare: both(&|told| (told.wrong.len() + told.still_dead).to_string()),
            result: sexton.wrong.first().map_or_else(|| "0".to_owned(), Clone::clone),
            wanted: "0",
            reached: wrong + sexton.still_dead == 0,
        },
    ]
}

async fn play(who: Who, down: Duration) -> Told {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    let crew = Crew::start(&redis, NS, &Hiring { policy: ATTEMPTS, ..Hiring::default() });
    let config = format!(
        "sources: [{{name: orders, smallage: {{url: \"{}\", namespace: {NS}}}}}]\n\
         http: {{listen: \"127.0.0.1:0\"}}\nrules: [rules.yaml]\n",
        redis.url()
    );
    let sexton = (who == Who::Sexton).then(|| Sexton::run_with(&config, &[("rules.yaml", RULES)]));
    if let Some(sexton) = &sexton {
        sexton.http().await.metric_is("sexton_leader", &[], 1.0).await;
    }
    crew.dependencies.break_down("smtp");
    let began = now(&mut con).await;
    let jobs = crew.enqueue(&mut con, "send_email", 0..JOBS).await;
    eventually("every job has died", SOON, || {
        let mut con = con.clone();
        async move { (graves(&mut con, NS).await == jobs_as_usize()).then_some(()) }
    })
    .await;
    let simple = match who {
        Who::Sexton => None,
        Who::Everything => Some(tokio::spawn(put_back(con.clone(), 1_000, Duration::from_secs(1)))),
        Who::FixedRate => Some(tokio::spawn(put_back(con.clone(), 1, Duration::from_secs(1) / PER_SECOND))),
    };
    tokio::time::sleep(down).await;
    let mended = now(&mut con).await;
    crew.dependencies.mend("smtp");
    let all_through = async {
        while crew.done() < JOBS {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    // Whoever is not through by then is counted as left dead.
    let _ = tokio::time::timeout(PATIENCE, all_through).await;
    if let Some(simple) = simple {
        simple.abort();
    }
    let picture = crew.picture(&mut con).await;
    crew.stop().await;
    told(who, &picture, &jobs, began, mended)
}

fn told(who: Who, picture: &Picture, jobs: &[String], began: i64, mended: i64) -> Told {
    let (backoff, max_retries) = if who == Who::Sexton { (2.0, 3) } else { (1.0, u32::MAX) };
    let allowed = Allowed {
        min_age: MIN_AGE,
        backoff,
        max_retries,
        max_attempts: ATTEMPTS.max_attempts,
        elsewhere: BTreeSet::new(),
    };
    Told {
        retries: picture.retries(ATTEMPTS.max_attempts),
        began,
        mended,
        wrong: audit(picture, jobs, &allowed),
        still_dead: jobs.len() - picture.ran_through().len(),
    }
}

/// A loop that learns nothing: every so often it puts back up to so many of those that are old enough.
async fn put_back(mut con: MultiplexedConnection, at_once: usize, every: Duration) {
    let script = Script::new(PUT_BACK);
    let mut beat = tokio::time::interval(every);
    loop {
        beat.tick().await;
        let old_enough = now(&mut con).await - i64::try_from(MIN_AGE.as_millis()).expect("small");
        let mut range = redis::cmd("XRANGE");
        range.arg(dlq_stream(NS)).arg("-").arg(old_enough - 1).arg("COUNT").arg(at_once);
        let entries: redis::streams::StreamRangeReply = range.query_async(&mut con).await.expect("XRANGE works");
        let mut call = script.key(dlq_stream(NS));
        call.key(queue_stream(NS, QUEUE));
        for entry in &entries.ids {
            call.arg(&entry.id);
        }
        if !entries.ids.is_empty() {
            let () = call.invoke_async(&mut con).await.expect("the script works");
        }
    }
}

/// What each did over time; the mend is the same for all, to the second.
fn print_curves(sexton: &Told, everything: &Told, fixed_rate: &Told) {
    let curves = [sexton, everything, fixed_rate].map(Told::curve);
    let mut table = Table::new();
    let made = |who: &str| format!("{who}: retries (at most in flight)");
    table.load_style(ASCII_MARKDOWN).set_header([
        "seconds".to_owned(),
        made("Sexton"),
        made("everything at once"),
        made(&format!("{PER_SECOND} a second")),
    ]);
    let mended = (sexton.mended - sexton.began).div_euclid(LINE_MS);
    for line in 0..curves.iter().map(Vec::len).max().unwrap_or_default() {
        let from = i64::try_from(line).expect("small");
        let mark = if from == mended { " (mended)" } else { "" };
        let mut row = vec![format!("{}{mark}", from * LINE_MS / 1000)];
        row.extend(curves.iter().map(|curve| match curve.get(line) {
            Some((made, most)) => format!("{made} ({most})"),
            None => "–".to_owned(),
        }));
        table.add_row(row);
    }
    println!("{table}\n");
}

fn jobs_as_usize() -> usize {
    usize::try_from(JOBS).expect("small")
}

fn from_ms(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or_default())
}

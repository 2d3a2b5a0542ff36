//! The retry loop as a whole, by the workers' own log of runs: it waits out an outage with single canaries, brings
//! everything back afterwards, and harms no job on the way.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use redis::{AsyncCommands as _, Script, aio::MultiplexedConnection};
use sexton::demo::{
    job::Policy,
    worker::{Conduct, dlq_stream, queue_stream},
};

use crate::support::{
    SOON, eventually,
    receiver::Request,
    redis::Options,
    stage::{HECTIC, NS, OUTAGES, RULE, Stage, Terms, leader},
    workers::{Hiring, QUEUE, QUICK, dedup_key},
};

/// After this, what has not been retried is not going to be without a reason.
const LONG: Duration = Duration::from_millis(1_500);
/// Buried with its first failure: the only way a job with a dedup key gets into a DLQ at all.
const SINGLE: Policy = Policy { max_attempts: 1, ..QUICK };

fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap()
}

/// How many events of each kind the hook was told, each id once.
fn told(requests: &[Request]) -> BTreeMap<String, usize> {
    let ids: BTreeMap<&str, &Request> = requests.iter().map(|request| (request.id(), request)).collect();
    let mut kinds = BTreeMap::new();
    for request in ids.values() {
        *kinds.entry(request.json()["type"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    kinds
}

#[tokio::test]
async fn an_outage_costs_a_few_canaries_and_everything_comes_back_after_it() {
    const JOBS: u64 = 200;
    const DOWN: Duration = Duration::from_secs(7);
    let terms = Terms { min_age: 1.0, backoff: 2.0, max_backoff: 8.0, max_retries: 3, start: 1, per_second: 200 };
    let mut stage = Stage::set(Options::default(), &Hiring::default(), terms).await;
    let sexton = stage.sexton();
    let http = sexton.http().await;
    leader(std::slice::from_ref(&sexton)).await;
    stage.enqueue("send_email", JOBS).await;
    stage.dead(200).await;
    tokio::time::sleep(DOWN).await;
    http.metric_is("sexton_groups_held", &[("rule", RULE)], 1.0).await;
    let mended = stage.now().await.0;
    let picture = stage.settles(Duration::from_secs(30)).await;
    let retries = picture.retries(QUICK.max_attempts);

    // While it is down: one at a time, with pauses that grow from a second to two, four and eight.
    let canaries: Vec<_> = retries.iter().filter(|retry| retry.put_back < mended).collect();
    assert!((2..=5).contains(&canaries.len()), "{canaries:?}");
    let mut canaries = canaries;
    canaries.sort_by_key(|retry| retry.put_back);
    let mut pause = ms(Duration::from_secs(1));
    for pair in canaries.windows(2) {
        let waited = pair[1].put_back - pair[0].ended.unwrap();
        assert!(waited >= pause, "{waited} ms after canary {pair:?}, {pause} expected");
        pause = (pause * 2).min(8_000);
    }
    // After it: another canary, and only when that one is back more follow.
    let mut after: Vec<_> = retries.iter().filter(|retry| retry.put_back >= mended).collect();
    after.sort_by_key(|retry| retry.put_back);
    assert!(after[1].put_back >= after[0].ended.unwrap(), "{:?}", &after[..2]);
    assert!(after.iter().all(|retry| retry.ok));
    let wasted = retries.iter().filter(|retry| !retry.ok).count();
    assert_eq!(retries.len(), usize::try_from(JOBS).unwrap() + wasted);

    // All of it is told, each thing once.
    let expected = BTreeMap::from([
        ("job.dead".to_owned(), 200 + wasted),
        ("job.retried".to_owned(), retries.len()),
        ("job.recovered".to_owned(), 200),
    ]);
    let requests = stage.receiver.until(SOON, |requests| told(requests) == expected).await;
    let of = |kind: &str, job: &str| -> Vec<serde_json::Value> {
        let of_job = |request: &Request| {
            let body = request.json();
            (body["type"] == kind && body["data"]["job_id"] == job).then(|| body["data"].clone())
        };
        requests.iter().filter_map(of_job).collect()
    };
    let twice_dead = &canaries[0].job;
    let deaths = of("job.dead", twice_dead);
    assert_eq!(deaths.len(), 2);
    assert_eq!((&deaths[0]["deaths"], &deaths[0]["retries"]), (&1.into(), &0.into()));
    assert_eq!((&deaths[1]["deaths"], &deaths[1]["retries"]), (&2.into(), &1.into()));
    assert!(deaths.iter().all(|death| death["rule"] == RULE && death["next_retry_at"].is_string()), "{deaths:?}");
    let recovered = &of("job.recovered", twice_dead)[0];
    assert_eq!(recovered["retries"], 2);
    assert!(recovered["retried_at"].is_string() && recovered["recovered_at"].is_string(), "{recovered}");

    let count = |count: usize| f64::from(u32::try_from(count).unwrap());
    http.metric_is("sexton_retries_total", &[("rule", RULE), ("task", "send_email")], count(retries.len())).await;
    http.metric_is("sexton_retry_outcomes_total", &[("rule", RULE), ("outcome", "recovered")], 200.0).await;
    http.metric_is("sexton_retry_outcomes_total", &[("rule", RULE), ("outcome", "re_died")], count(wasted)).await;
    http.metric_is("sexton_jobs_dead_total", &[("death", "again")], count(wasted)).await;
    http.metric_is("sexton_retries_in_flight", &[("rule", RULE)], 0.0).await;
    http.metric_is("sexton_groups_held", &[("rule", RULE)], 0.0).await;
    http.metric_is("sexton_retry_due_entries", &[], 0.0).await;
    assert_eq!(stage.logged("retried").await, retries.len());
    assert_eq!(stage.logged("recovered").await, 200);
    assert_eq!(stage.logged("re_died").await, wasted);
    stage.ledger_agrees(&picture).await;
}

#[tokio::test]
async fn what_never_recovers_is_exhausted_once_and_then_left_alone() {
    let terms = Terms { max_retries: 2, ..HECTIC };
    let mut stage = Stage::set(Options::default(), &Hiring::default(), terms).await;
    let sexton = stage.sexton();
    leader(std::slice::from_ref(&sexton)).await;
    stage.enqueue("parse_order", 4).await;
    let picture = stage.settles(SOON).await;
    assert_eq!(picture.retries(QUICK.max_attempts).len(), 8);
    let expected =
        BTreeMap::from([("job.dead".to_owned(), 12), ("job.retried".to_owned(), 8), ("job.exhausted".to_owned(), 4)]);
    let requests = stage.receiver.until(SOON, |requests| told(requests) == expected).await;
    let exhausted: BTreeSet<String> = requests
        .iter()
        .map(Request::json)
        .filter(|body| body["type"] == "job.exhausted")
        .map(|body| {
            assert_eq!((&body["data"]["deaths"], &body["data"]["retries"]), (&3.into(), &2.into()));
            body["data"]["job_id"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(exhausted, stage.jobs.iter().cloned().collect());
    let http = sexton.http().await;
    http.metric_is("sexton_entries_exhausted_total", &[("rule", RULE)], 4.0).await;
    http.metric_is("sexton_retry_due_entries", &[], 0.0).await;
    assert_eq!(stage.logged("exhausted").await, 4);
    tokio::time::sleep(LONG).await;
    assert_eq!(stage.picture().await.runs, picture.runs, "nothing has run since");
    assert_eq!(told(&stage.receiver.requests()), expected);
}

#[tokio::test]
async fn a_job_with_a_dedup_key_is_never_lost_whatever_becomes_of_it() {
    let hiring = Hiring { policy: SINGLE, ..Hiring::default() };
    let mut stage = Stage::set(Options::default(), &hiring, HECTIC).await;
    let sexton = stage.sexton();
    leader(std::slice::from_ref(&sexton)).await;
    stage.crew.dependencies.break_down("pay");
    stage.enqueue_with_dedup("send_email", 20).await;
    stage.enqueue_with_dedup("parse_order", 2).await;
    let foreign = stage.enqueue_with_dedup("charge_card", 1).await.start;
    stage.dead(23).await;
    // Its key now belongs to another job for a while: a worker would drop it without a run, so it must wait.
    let key = format!("{{{NS}}}:dedup:{}", dedup_key(foreign));
    let () = stage.con.pset_ex(&key, "another-job", 4_000).await.unwrap();
    stage.crew.dependencies.mend("pay");
    let taken = stage.now().await.0;
    // Some die again, with the key claimed by the very run that failed.
    let again = &[("death", "again"), ("task", "send_email")];
    let http = sexton.http().await;
    eventually("some have died again", SOON, || async move {
        http.metric("sexton_jobs_dead_total", again).await.filter(|deaths| *deaths >= 3.0)
    })
    .await;
    let picture = stage.settles(Duration::from_secs(40)).await;
    let retries = picture.retries(SINGLE.max_attempts);
    assert!(retries.iter().any(|retry| retry.ok) && retries.iter().any(|retry| !retry.ok));
    let waited = retries.iter().find(|retry| retry.job == crate::support::graveyard::job_id(foreign)).unwrap();
    assert!(waited.ok && waited.put_back >= taken + 4_000, "{waited:?} after {taken}");
    let lives_of_retries: BTreeSet<u32> =
        picture.runs.iter().filter(|run| run.attempt > 0).map(|run| run.attempt).collect();
    assert_eq!(lives_of_retries, BTreeSet::from([1_000_000]), "so high that failing buries it at once");
    assert_eq!(picture.dead.len(), 2, "only what never recovers is left");
    stage.ledger_agrees(&picture).await;
}

#[tokio::test]
async fn a_job_buried_twice_by_a_crash_is_retried_once() {
    let conduct = Conduct { deaths: 5, ..Conduct::default() };
    let hiring = Hiring { workers: 1, conduct, ..Hiring::default() };
    let mut stage = Stage::set(Options::default(), &hiring, HECTIC).await;
    let sexton = stage.sexton();
    leader(std::slice::from_ref(&sexton)).await;
    stage.enqueue("send_email", 10).await;
    stage.dead(15).await;
    let picture = stage.settles(SOON).await;
    assert!(picture.dead.is_empty(), "{:?}", picture.dead);
    assert!(picture.ran_through().values().all(|times| *times == 1), "{:?}", picture.ran_through());
    let retries = picture.retries(QUICK.max_attempts);
    assert_eq!(stage.logged("retried").await, retries.len());
    assert_eq!(stage.logged("twin_removed").await, 5);
    sexton.http().await.metric_is("sexton_retry_due_entries", &[], 0.0).await;
    stage.ledger_agrees(&picture).await;
}

/// A person at work: takes an entry, if it is still there, off the DLQ; back to the queue, or for good.
const BY_HAND: &str = "
local entry = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])[1]
if not entry then
  return {'', ''}
end
local fields, job = {}, ''
for i = 1, #entry[2], 2 do
  local name, value = entry[2][i], entry[2][i + 1]
  if name == 'id' then job = value end
  if string.sub(name, 1, 4) ~= 'dlq_' then
    fields[#fields + 1] = name
    fields[#fields + 1] = name == 'attempt' and '0' or value
  end
end
local id = ''
if ARGV[2] == 'back' then
  id = redis.call('XADD', KEYS[2], '*', unpack(fields))
end
redis.call('XDEL', KEYS[1], ARGV[1])
return {job, id}";

/// What somebody else did: the queue entries they made, and the jobs they took away for good.
#[derive(Debug, Default)]
struct ByHand {
    put_back: BTreeSet<String>,
    taken: BTreeSet<String>,
}

async fn meddle(mut con: MultiplexedConnection, times: u32) -> ByHand {
    let script = Script::new(BY_HAND);
    let mut done = ByHand::default();
    for _ in 0..times {
        tokio::time::sleep(Duration::from_millis(30)).await;
        let page: redis::streams::StreamRangeReply = con.xrange_count(dlq_stream(NS), "-", "+", 50).await.unwrap();
        if page.ids.is_empty() {
            continue;
        }
        let entry = &page.ids[fastrand::usize(..page.ids.len())].id;
        let back = fastrand::u8(..4) > 0;
        let mut call = script.key(dlq_stream(NS));
        call.key(queue_stream(NS, QUEUE)).arg(entry).arg(if back { "back" } else { "away" });
        let (job, id): (String, String) = call.invoke_async(&mut con).await.unwrap();
        match (job.is_empty(), back) {
            (true, _) => {}
            (false, true) => drop(done.put_back.insert(id)),
            (false, false) => drop(done.taken.insert(job)),
        }
    }
    done
}

#[tokio::test]
async fn somebody_else_on_the_same_dlq_does_no_harm() {
    // So slow that there is something left for the other one, and with an allowance that nobody spends.
    let terms = Terms { per_second: 20, max_retries: 100, ..HECTIC };
    let mut stage = Stage::set(Options::default(), &Hiring::default(), terms).await;
    let sexton = stage.sexton();
    leader(std::slice::from_ref(&sexton)).await;
    stage.enqueue("send_email", 150).await;
    stage.dead(150).await;
    let breath = stage.breathing(OUTAGES);
    let ByHand { put_back, taken } = meddle(stage.redis.connect().await, 120).await;
    drop(breath);
    assert!(put_back.len() > 10 && taken.len() > 3, "{put_back:?} {taken:?}");
    // What was taken away for good is nobody's any more.
    stage.jobs.retain(|job| !taken.contains(job));
    stage.allowed.elsewhere = put_back;
    stage.crew.dependencies.mend("smtp");
    let picture = eventually("what is left has run through", Duration::from_secs(30), || {
        let (crew, jobs, taken, mut con) = (&stage.crew, &stage.jobs, &taken, stage.con.clone());
        async move {
            let mut picture = crew.picture(&mut con).await;
            picture.runs.retain(|run| !taken.contains(&run.job));
            let through = picture.ran_through();
            let all_through = jobs.iter().all(|job| through.contains_key(job.as_str()));
            (picture.queued.is_empty() && all_through).then_some(picture)
        }
    })
    .await;
    stage.passes(&picture);
    assert!(picture.dead.is_empty(), "{:?}", picture.dead);
    sexton.http().await.metric_is("sexton_retry_due_entries", &[], 0.0).await;
}

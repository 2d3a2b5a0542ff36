//! What a server tells of itself, judged: is it one that can be worked with, and will it keep what it is given. Pure.

use std::time::Duration;

use super::info::Info;
use crate::{
    config::{RedisUrl, Via},
    ledger::{Aspect, Finding},
};

/// The oldest version of Redis that has what the scripts use.
const OLDEST: u32 = 7;
/// A slower answer makes every step of the leader slow.
const SLOW: Duration = Duration::from_millis(50);
/// Of its memory, in percent, from which on little is left.
const NEARLY_FULL: u64 = 90;

/// Seconds after which one that takes snapshots at all has taken one, if anything has changed: twice the default.
const LONG_UNSAVED: u64 = 7_200;

/// Whether snapshots are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Snapshots {
    /// At certain times.
    Taken,
    /// Never.
    Never,
    /// We may not see.
    Unknown,
}

/// What it is.
pub(super) fn judge(info: &Info, round_trip: Option<Duration>) -> Vec<Finding> {
    if info.is_sentinel() {
        // It is not what is meant, so nothing else of it matters.
        return vec![Finding::unusable(
            Aspect::Version,
            "this is a Sentinel, which knows where Redis is and holds no data",
            "write redis+sentinel://HOST:26379,HOST:26379/MASTER in `url`, or name the Redis that it watches",
        )];
    }
    let mut found = vec![version(info)];
    if info.is_replica() {
        let primary = info.primary().map(|primary| format!(", {primary}")).unwrap_or_default();
        found.push(Finding::unusable(
            Aspect::Version,
            "this is a replica, and Sexton has to write",
            format!("name the primary{primary} in `url`, or a service that always leads to it"),
        ));
    }
    if info.is_loading() {
        found.push(Finding::unusable(
            Aspect::Writes,
            "it is still reading its data from disk (LOADING)",
            "wait until it has read all, and check again",
        ));
    }
    if let Some(round_trip) = round_trip.filter(|round_trip| *round_trip >= SLOW) {
        found.push(Finding::warning(
            Aspect::Reach,
            format!("it takes {} to answer", shown(round_trip)),
            "run Sexton nearer to it, or find what makes it slow (SLOWLOG GET): every retry and every death waits for it",
        ));
    } else if let Some(round_trip) = round_trip {
        found.insert(0, Finding::ok(Aspect::Reach, format!("it answers in {}", shown(round_trip))));
    }
    found
}

/// Where the URL is in another form than the one for this server.
pub(super) fn form(info: &Info, url: &RedisUrl) -> Option<Finding> {
    let redis = if url.tls { "rediss" } else { "redis" };
    match (&url.via, info.is_cluster()) {
        (Via::Cluster { .. }, false) => Some(Finding::warning(
            Aspect::Version,
            "this is no Cluster, and `url` asks for one: its other hosts are never used",
            format!("write {redis}://HOST:6379 in `url`"),
        )),
        (Via::Itself, true) => Some(Finding::warning(
            Aspect::Version,
            "this is one node of a Cluster: once it fails, or the namespace moves to another, nothing is done any more",
            format!("write {redis}+cluster://HOST:6379,HOST:6379 in `url`"),
        )),
        _ => None,
    }
}

fn version(info: &Info) -> Finding {
    let (product, version) = info.product();
    let role = match (info.is_cluster(), info.is_replica()) {
        (false, false) => "a standalone primary",
        (false, true) => "a replica",
        (true, false) => "a primary of a Cluster",
        (true, true) => "a replica in a Cluster",
    };
    match info.major() {
        Some(major) if major < OLDEST => Finding::unusable(
            Aspect::Version,
            format!("it is {product} {version}, which lacks commands that Sexton uses"),
            format!("use Redis {OLDEST} or newer, or Valkey"),
        ),
        Some(_) => Finding::ok(Aspect::Version, format!("it is {product} {version}, {role}")),
        None => Finding::warning(
            Aspect::Version,
            "it does not say which version of Redis it is",
            format!("make sure that it can do what Redis {OLDEST} can"),
        ),
    }
}

/// What is said where nothing is told.
pub(super) fn unseen(user: &str, round_trip: Option<Duration>) -> Finding {
    let answers = round_trip.map(|time| format!("it answers in {}, but ", shown(time))).unwrap_or_default();
    Finding {
        missing: vec!["+info".to_owned()],
        ..Finding::warning(
            Aspect::Version,
            format!("{answers}its version, role, memory and persistence cannot be seen: {user} may not INFO"),
            format!("for the check alone: ACL SETUSER {user} +info"),
        )
    }
}

/// What it does when memory ends, and what a restart of it would forget.
pub(super) fn judge_storage(info: &Info, snapshots: Snapshots) -> Vec<Finding> {
    let mut found = vec![eviction(info)];
    found.extend(fullness(info));
    found.push(persistence(info, snapshots));
    found.extend(failing_disk(info));
    found
}

fn eviction(info: &Info) -> Finding {
    let help = "CONFIG SET maxmemory-policy noeviction, and the same in its configuration";
    let limit = info.number("maxmemory").filter(|limit| *limit > 0);
    let Some(policy) = info.get("maxmemory_policy") else {
        return Finding::warning(
            Aspect::Memory,
            "it does not say what it does when memory ends",
            "make sure that nothing is evicted (maxmemory-policy noeviction)",
        );
    };
    let drops_all = policy.starts_with("allkeys");
    match (policy, limit) {
        ("noeviction", None) => Finding::ok(Aspect::Memory, "nothing is evicted, and memory has no limit"),
        ("noeviction", Some(limit)) => {
            Finding::ok(Aspect::Memory, format!("nothing is evicted; memory is limited to {}", bytes(limit)))
        }
        (policy, Some(limit)) if drops_all => Finding::error(
            Aspect::Memory,
            format!(
                "with {policy} it drops any key once {} are full: dead letters, queues and the ledger",
                bytes(limit)
            ),
            help,
        ),
        (policy, Some(limit)) => Finding::warning(
            Aspect::Memory,
            format!(
                "with {policy} it drops keys that expire once {} are full: the lease, and how often a job was \
                 retried, so that it may be retried more often than its rule allows",
                bytes(limit)
            ),
            help,
        ),
        (policy, None) if drops_all => Finding::warning(
            Aspect::Memory,
            format!("with {policy} it would drop any key if memory had a limit (maxmemory); it has none now"),
            help,
        ),
        (policy, None) => Finding::ok(Aspect::Memory, format!("memory has no limit, so nothing is evicted ({policy})")),
    }
}

fn fullness(info: &Info) -> Option<Finding> {
    let limit = info.number("maxmemory").filter(|limit| *limit > 0)?;
    let used = info.number("used_memory")?;
    let percent = used.saturating_mul(100) / limit;
    (percent >= NEARLY_FULL).then(|| {
        Finding::warning(
            Aspect::Memory,
            format!("{percent} % of its memory are used ({} of {})", bytes(used), bytes(limit)),
            "raise maxmemory, or make room: when it is full, nothing is announced or retried",
        )
    })
}

fn persistence(info: &Info, snapshots: Snapshots) -> Finding {
    let help = "CONFIG SET appendonly yes, and the same in its configuration";
    if info.has_aof() {
        return Finding::ok(Aspect::Persistence, "what is written survives a restart (append-only file)");
    }
    match if snapshots == Snapshots::Unknown { seen_snapshots(info) } else { snapshots } {
        Snapshots::Taken => Finding::ok(
            Aspect::Persistence,
            "snapshots are taken: a restart forgets what came after the last one (with appendonly yes hardly anything)",
        ),
        Snapshots::Unknown => Finding::warning(
            Aspect::Persistence,
            "there is no append-only file; whether snapshots are taken cannot be seen from here",
            format!("see what CONFIG GET save says there (nothing: none are taken), or {help}"),
        ),
        Snapshots::Never => Finding::warning(
            Aspect::Persistence,
            "there is neither an append-only file nor a snapshot: a restart forgets queues, dead letters and the ledger",
            help,
        ),
    }
}

/// Whether snapshots are taken, by what has become of it since the start.
fn seen_snapshots(info: &Info) -> Snapshots {
    match info.get("rdb_last_bgsave_time_sec") {
        None => Snapshots::Unknown,
        Some("-1") => {
            let unsaved = info.number("rdb_changes_since_last_save").is_some_and(|changes| changes > 0);
            let long = info.number("uptime_in_seconds").is_some_and(|uptime| uptime >= LONG_UNSAVED);
            if unsaved && long { Snapshots::Never } else { Snapshots::Unknown }
        }
        Some(_) => Snapshots::Taken,
    }
}

fn failing_disk(info: &Info) -> Option<Finding> {
    let failing = ["rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status"];
    let field = failing.into_iter().find(|field| info.get(field).is_some_and(|status| status == "err"))?;
    Some(Finding::warning(
        Aspect::Persistence,
        format!("it could not write to its disk the last time ({field} err)"),
        "look at the server's log; as long as that lasts it may refuse writes (MISCONF)",
    ))
}

/// Milliseconds, with as many digits as say something.
fn shown(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1_000.0;
    match ms {
        ..0.1 => "less than 0.1 ms".to_owned(),
        ..10.0 => format!("{ms:.1} ms"),
        _ => format!("{ms:.0} ms"),
    }
}

/// Bytes in the unit that `maxmemory` would be given in.
fn bytes(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")];
    match UNITS.into_iter().find(|(size, _)| bytes >= *size) {
        Some((size, unit)) if bytes.is_multiple_of(size) => format!("{} {unit}", bytes / size),
        Some((size, unit)) => {
            let tenths = bytes.saturating_mul(10) / size;
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Level;

    #[test]
    fn old_servers_replicas_and_sentinels_cannot_be_used() {
        for (text, levels, unusable) in [
            ("redis_version:7.0.0\nrole:master", vec![Level::Ok], false),
            ("redis_version:7.2.4\nvalkey_version:8.0.1\nrole:master\ncluster_enabled:1", vec![Level::Ok], false),
            ("redis_version:6.2.14\nrole:master", vec![Level::Error], true),
            ("redis_version:7.4.1\nrole:slave\nmaster_host:h\nmaster_port:1", vec![Level::Ok, Level::Error], true),
            ("redis_version:7.4.1\nredis_mode:sentinel", vec![Level::Error], true),
            ("redis_version:7.4.1\nrole:master\nloading:1", vec![Level::Ok, Level::Error], true),
            ("role:master", vec![Level::Warning], false),
        ] {
            let found = judge(&Info::of(text), None);
            assert_eq!(found.iter().map(|found| found.level).collect::<Vec<_>>(), levels, "{text}");
            assert_eq!(found.iter().any(|found| found.unusable), unusable, "{text}");
        }
        let replica = &judge(&Info::of("role:slave\nmaster_host:10.0.0.1\nmaster_port:6379"), None)[1];
        assert!(replica.help.as_ref().is_some_and(|help| help.contains("10.0.0.1:6379")), "{replica:?}");
    }

    #[test]
    fn a_url_in_the_form_for_another_kind_of_server_is_warned_of() {
        for (url, cluster, help) in [
            ("redis://h", false, None),
            ("redis+cluster://h", true, None),
            ("redis+sentinel://h/m", false, None),
            ("redis+cluster://h", false, Some("write redis://HOST")),
            ("rediss+cluster://h", false, Some("write rediss://HOST")),
            ("redis://h", true, Some("write redis+cluster://HOST")),
            ("rediss://h", true, Some("write rediss+cluster://HOST")),
        ] {
            let info = Info::of(if cluster { "cluster_enabled:1" } else { "cluster_enabled:0" });
            let found = form(&info, &RedisUrl::read(url).unwrap());
            assert_eq!(found.is_some(), help.is_some(), "{url}");
            let told = found.and_then(|found| found.help).unwrap_or_default();
            assert!(told.starts_with(help.unwrap_or_default()), "{url}: {told}");
        }
    }

    #[test]
    fn slow_answers_are_warned_of() {
        for (ms, level, said) in [
            (0.04, Level::Ok, "than 0.1 ms"),
            (0.32, Level::Ok, "0.3 ms"),
            (49.9, Level::Ok, "50 ms"),
            (50.0, Level::Warning, "50 ms"),
        ] {
            let info = Info::of("redis_version:7.0.0");
            let found = judge(&info, Some(Duration::from_secs_f64(ms / 1_000.0)));
            let reach: Vec<_> = found.iter().filter(|found| found.aspect == Aspect::Reach).collect();
            assert_eq!((reach.len(), reach[0].level), (1, level), "{ms}");
            assert!(reach[0].message.contains(said), "{ms}: {}", reach[0].message);
        }
    }

    #[test]
    fn what_is_evicted_is_as_bad_as_what_it_would_take() {
        for (policy, limit, level) in [
            ("noeviction", 0, Level::Ok),
            ("noeviction", 1 << 30, Level::Ok),
            ("allkeys-lru", 1 << 30, Level::Error),
            ("allkeys-random", 1 << 20, Level::Error),
            ("allkeys-lru", 0, Level::Warning),
            ("volatile-ttl", 1 << 30, Level::Warning),
            ("volatile-lru", 0, Level::Ok),
        ] {
            let found = eviction(&Info::of(&format!("maxmemory:{limit}\nmaxmemory_policy:{policy}")));
            assert_eq!(found.level, level, "{policy} {limit}");
            assert_eq!(found.help.is_some(), level != Level::Ok, "{policy} {limit}");
        }
        assert_eq!(eviction(&Info::of("")).level, Level::Warning);
    }

    #[test]
    fn little_room_and_no_persistence_are_warned_of() {
        for (used, limit, warned) in [(90, 100, true), (89, 100, false), (110, 100, true), (90, 0, false)] {
            let info = Info::of(&format!("used_memory:{used}\nmaxmemory:{limit}"));
            assert_eq!(fullness(&info).is_some(), warned, "{used} of {limit}");
        }
        for (text, snapshots, level) in [
            ("aof_enabled:1", Snapshots::Unknown, Level::Ok),
            ("aof_enabled:0", Snapshots::Taken, Level::Ok),
            ("aof_enabled:0", Snapshots::Unknown, Level::Warning),
            ("aof_enabled:0", Snapshots::Never, Level::Warning),
            ("rdb_last_bgsave_time_sec:0", Snapshots::Unknown, Level::Ok),
            (
                "rdb_last_bgsave_time_sec:-1\nrdb_changes_since_last_save:1\nuptime_in_seconds:7200",
                Snapshots::Unknown,
                Level::Warning,
            ),
            (
                "rdb_last_bgsave_time_sec:-1\nrdb_changes_since_last_save:1\nuptime_in_seconds:7199",
                Snapshots::Unknown,
                Level::Warning,
            ),
            (
                "rdb_last_bgsave_time_sec:-1\nrdb_changes_since_last_save:0\nuptime_in_seconds:7200",
                Snapshots::Unknown,
                Level::Warning,
            ),
        ] {
            assert_eq!(persistence(&Info::of(text), snapshots).level, level, "{text} {snapshots:?}");
        }
        assert_eq!(failing_disk(&Info::of("rdb_last_bgsave_status:ok\naof_last_write_status:ok")), None);
        assert!(failing_disk(&Info::of("aof_last_write_status:err")).is_some());
    }

    #[test]
    fn bytes_are_written_in_their_unit() {
        for (number, expected) in [
            (0, "0 bytes"),
            (1_023, "1023 bytes"),
            (1_024, "1 KB"),
            (1_536, "1.5 KB"),
            (8 << 20, "8 MB"),
            (1_288_490_189, "1.2 GB"),
        ] {
            assert_eq!(bytes(number), expected);
        }
    }
}

//! What 49 standbys cost Redis together, and how soon one of them leads when the leader is told to stop.

use std::time::Duration;

use sexton::clock::monotonic;

use super::{
    Figure,
    support::{
        fleet::{Fleet, of_standbys},
        monitor::Monitor,
        redis::{Options, Redis},
    },
};

const SIDECARS: usize = 50;
/// The default.
const LEASE: Duration = Duration::from_secs(10);
/// Some looks of each.
const QUIET: Duration = Duration::from_secs(30);
const HANDOVERS: usize = 5;

pub(super) async fn figures() -> Vec<Figure> {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    let mut fleet = Fleet::start(&redis, "lrs", SIDECARS, LEASE).await;
    let (mut leader, mut epoch) = fleet.led_above(0).await;
    let mut monitor = Monitor::of(&redis).await;
    let (began, cpu) = (monotonic(), cpu_time(&fleet, leader));
    tokio::time::sleep(QUIET).await;
    let (took, cpu) = (began.elapsed().as_secs_f64(), cpu_time(&fleet, leader) - cpu);
    let () = redis::cmd("ECHO").arg("the end").query_async(&mut con).await.expect("Redis is there");
    let per_second = of_standbys(&monitor.until("the end").await).len() as f64 / took;
    // Nobody reads it any more.
    drop(monitor);

    let mut worst = Duration::ZERO;
    for _ in 0..HANDOVERS {
        let told = monotonic();
        fleet.sidecars[leader].process.terminate();
        let (next, taken) = fleet.taken_above(epoch).await;
        worst = worst.max(told.elapsed());
        fleet.sidecars.remove(leader);
        (leader, epoch) = (if next > leader { next - 1 } else { next }, taken);
    }
    let standbys = SIDECARS - 1;
    let one = per_second / standbys as f64;
    let cpu = cpu.as_secs_f64() / took / standbys as f64;
    vec![
        Figure {
            what: format!("Redis commands a second of {standbys} idle standbys together"),
            measured: format!("{per_second:.0}/s"),
            bare: format!("{one:.2}/s and {:.2} % of a core each", cpu * 100.0),
            result: format!("{per_second:.0}/s"),
            wanted: "< 100/s",
            reached: per_second < 100.0,
        },
        Figure {
            what: format!("the leader is told to stop ({HANDOVERS} times): one of them has the lease, at worst"),
            measured: format!("{:.0} ms", worst.as_secs_f64() * 1e3),
            bare: "–".to_owned(),
            result: format!("{:.0} ms", worst.as_secs_f64() * 1e3),
            wanted: "≤ 1 s",
            reached: worst <= Duration::from_secs(1),
        },
    ]
}

/// Of all that do not lead.
fn cpu_time(fleet: &Fleet, leader: usize) -> Duration {
    let standbys = fleet.sidecars.iter().enumerate().filter(|(n, _)| *n != leader);
    standbys.map(|(_, sidecar)| sidecar.process.cpu_time()).sum()
}

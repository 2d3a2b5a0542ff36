//! How long nobody acts when the leader is killed, with the default lease.

use std::time::Duration;

use sexton::clock::monotonic;

use super::{
    Figure,
    support::{
        eventually,
        process::Sexton,
        redis::{Options, Redis},
    },
};

const ROUNDS: usize = 5;
const LEASE: Duration = Duration::from_secs(10);

pub(super) async fn figures() -> Vec<Figure> {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let config = format!(
        "sources: [{{name: orders, smallage: {{url: \"{}\"}}}}]\nhttp: {{listen: \"127.0.0.1:0\"}}\n",
        redis.url()
    );
    let leads = async |sexton: &Sexton| {
        let http = sexton.http().await;
        eventually("a replica leads", Duration::from_secs(30), || async {
            http.metric("sexton_leader", &[]).await.filter(|leads| *leads > 0.5)
        })
        .await;
    };
    let mut worst = Duration::ZERO;
    let mut leader = Sexton::run(&config);
    leads(&leader).await;
    for _ in 0..ROUNDS {
        let standby = Sexton::run(&config);
        standby.http().await.answers("/readyz", 200).await;
        // Anywhere between two renewals.
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..3_500))).await;
        leader.process.kill();
        let killed = monotonic();
        leads(&standby).await;
        worst = worst.max(killed.elapsed());
        leader = standby;
    }
    let most = LEASE + Duration::from_secs(2);
    vec![Figure {
        what: format!("the leader is killed ({ROUNDS} times): a standby acts, at worst"),
        measured: format!("{:.1} s", worst.as_secs_f64()),
        bare: format!("lease {} s", LEASE.as_secs()),
        result: format!("{:.1} s", worst.as_secs_f64()),
        wanted: "≤ lease + 2 s",
        reached: worst <= most,
    }]
}

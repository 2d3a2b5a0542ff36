//! The figures: what Sexton costs and how fast it is, each against a bare loop in the same run.
//!
//! `cargo bench` runs all of them and prints a table; `cargo bench -- ingest latency` runs some. `--down=20s` shortens
//! the time for which the dependency of `closed_loop` is down.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark is there to print")]

mod closed_loop;
mod failover;
mod ingest;
mod latency;
mod retries;
mod standbys;
mod triage;
mod watching;

#[path = "../it/support/mod.rs"]
mod support;

use comfy_table::{Table, presets::ASCII_MARKDOWN};

/// One line of the table.
struct Figure {
    /// What was measured.
    what: String,
    /// What came out.
    measured: String,
    /// What it is compared with.
    bare: String,
    /// The ratio or difference that counts.
    result: String,
    /// What it ought to be.
    wanted: &'static str,
    /// Whether it is.
    reached: bool,
}

fn main() {
    let chosen: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let down = std::env::args().find_map(|arg| arg.strip_prefix("--down=").map(str::to_owned));
    let down = down.map_or(closed_loop::DOWN, |down| humantime::parse_duration(&down).expect("--down=20s, say"));
    let wanted = |name: &str| chosen.is_empty() || chosen.iter().any(|one| one == name);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be built");
    let mut figures = Vec::new();
    runtime.block_on(async {
        if wanted("ingest") {
            eprintln!("ingest: 200,000 entries of about 1 KB …");
            figures.extend(ingest::figures().await);
        }
        if wanted("latency") {
            eprintln!("latency: 200 deaths a second …");
            figures.extend(latency::figures().await);
        }
        if wanted("watching") {
            eprintln!("watching: 1,000 and 1,000,000 entries …");
            figures.extend(watching::figures().await);
        }
        if wanted("idle") {
            eprintln!("idle: 1,000 and 1,000,000 entries that wait by rule …");
            figures.extend(watching::waiting_figures().await);
        }
        if wanted("retries") {
            eprintln!("retries: 20,000 entries of about 1 KB …");
            figures.extend(retries::figures().await);
        }
        if wanted("closed_loop") {
            eprintln!("closed_loop: 1,000 dead jobs, their dependency down for {} s …", down.as_secs());
            figures.extend(closed_loop::figures(down).await);
        }
        if wanted("triage") {
            eprintln!("triage: 1,000,000 entries of about 1 KB …");
            figures.extend(triage::figures().await);
        }
        if wanted("failover") {
            eprintln!("failover: the leader is killed …");
            figures.extend(failover::figures().await);
        }
        if wanted("standbys") {
            eprintln!("standbys: fifty sidecars …");
            figures.extend(standbys::figures().await);
        }
    });
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(["what", "measured", "bare loop", "result", "wanted", "reached"]);
    for figure in &figures {
        let reached = if figure.reached { "yes" } else { "NO" };
        table.add_row([&figure.what, &figure.measured, &figure.bare, &figure.result, figure.wanted, reached]);
    }
    println!("{table}");
}

/// The `q`th quantile (0 to 1) of some durations, in microseconds.
fn quantile(sorted: &[std::time::Duration], q: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
    let index = ((sorted.len() - 1) as f64 * q).round() as usize;
    sorted[index].as_secs_f64() * 1e6
}

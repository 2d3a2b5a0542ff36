//! The command line: what people type, what they see, and how the process ends.
//!
//! A thin layer. Commands read the ledger through its contract and write to injected streams; nothing here decides
//! anything about jobs.

mod act;
mod alerts;
mod attempts;
mod audit;
mod check;
mod errors;
mod exit;
mod explain;
mod filter;
mod groups;
mod hooks;
mod io;
mod logging;
mod ls;
mod manual;
mod payload;
mod progress;
mod rules;
mod run;
mod show;
mod since;
mod source;
mod stats;
mod table;
#[cfg(test)]
mod tests;
mod text;

use std::{future::Future, io::BufWriter, process::ExitCode, time::Duration};

use clap::{CommandFactory as _, Parser, Subcommand};

use self::{
    exit::{Exit, Failure},
    io::{Io, Screen},
    source::{ledgers, source_ledgers},
    text::line,
};
use crate::{
    config::{Env, ForRules, ProcessEnv},
    demo,
    triage::Measure,
    version::with_revision,
};

/// Work that was left behind when a command ended gets this long.
const LEFT_BEHIND: Duration = Duration::from_millis(200);

const ABOUT: &str = "\
Sexton stands beside job workers, watches their dead-letter queue, and announces every death.";

const NOTES: &str = "\
Examples:
  sexton demo
  sexton run -c sexton.yaml
  sexton ls --smallage redis://localhost:6379 --newer-than 1h
  sexton show 1795972370488-0
  sexton explain 1795972370488-0
  sexton alerts
  sexton groups --newer-than 1h
  sexton retry --error 'timed out' --dry-run

Exit codes:
  0   done
  1   failed: not found, not delivered, not written, stopped before the end
  2   the command line makes no sense
  69  a store cannot be used: unreachable, refusing, or taking no writes
  78  the configuration is wrong";

#[derive(Parser, Clone, Debug)]
#[command(name = "sexton", version, long_version = with_revision(), about = ABOUT, after_help = NOTES)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Log to stderr what a command does
    #[arg(short, long, global = true)]
    verbose: bool,
}

#[derive(Subcommand, Clone, Debug)]
enum Command {
    /// Run the sidecar
    #[command(after_help = run::EXAMPLES)]
    Run(run::RunArgs),
    /// Check the configuration and the rules
    #[command(after_help = check::EXAMPLES)]
    Check(check::CheckArgs),
    /// List dead letters, newest first
    #[command(after_help = ls::EXAMPLES)]
    Ls(ls::LsArgs),
    /// Show everything about one dead letter
    #[command(after_help = show::EXAMPLES)]
    Show(show::ShowArgs),
    /// Show every failed attempt, not just the last
    #[command(after_help = errors::EXAMPLES)]
    Errors(errors::ErrorsArgs),
    /// Tell why an entry was or was not retried, and when it will be
    #[command(after_help = explain::EXAMPLES)]
    Explain(explain::ExplainArgs),
    /// Count dead letters by what they have in common
    #[command(after_help = groups::EXAMPLES)]
    Groups(groups::GroupsArgs),
    /// Put dead letters back on their queues, by name or filter
    #[command(after_help = act::RETRY_EXAMPLES)]
    Retry(act::ActArgs),
    /// Remove dead letters for good, by name or filter
    #[command(after_help = act::RM_EXAMPLES)]
    Rm(act::ActArgs),
    /// Remove what died longer ago than an age
    #[command(after_help = act::PURGE_EXAMPLES)]
    Purge(act::PurgeArgs),
    /// List who, or which rule, did what
    #[command(after_help = audit::EXAMPLES)]
    Audit(audit::AuditArgs),
    /// Try what the rules would do with the DLQ as it is now
    #[command(after_help = "Example:\n  sexton rules try\n\nIt has more to say with --help.")]
    Rules(rules::RulesArgs),
    /// Show what fires, what is pending, and how far every rule is from firing
    #[command(after_help = alerts::EXAMPLES)]
    Alerts(alerts::AlertsArgs),
    /// Show the picture of every source in one screen
    #[command(after_help = stats::EXAMPLES)]
    Stats(stats::StatsArgs),
    /// Look at hooks, test one, or send again
    #[command(after_help = hooks::EXAMPLES)]
    Hooks(hooks::HooksArgs),
    /// Write what a shell completes commands by
    #[command(after_help = manual::COMPLETIONS_EXAMPLES)]
    Completions(manual::CompletionsArgs),
    /// Write manual pages
    #[command(after_help = manual::MAN_EXAMPLES)]
    Man(manual::ManArgs),
    /// See all of it on a private Redis, in less than a minute
    #[command(after_help = "Example:\n  sexton demo\n\nNeeds redis-server on the PATH. Leaves nothing behind.")]
    Demo,
}

/// Reads the command line, does what it says, and says how that went.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help goes to stdout and is no failure; whoever reads it may have read enough.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage } else { Exit::Done }.into();
        }
    };
    let env = ProcessEnv;
    let no_color = env.var("NO_COLOR");
    // Neither is locked: the sidecar logs from other threads.
    let (mut out, mut err) = (BufWriter::new(std::io::stdout()), std::io::stderr());
    let mut input = std::io::stdin().lock();
    let screen = Screen::of_process(no_color.as_deref());
    let mut io = Io { out: &mut out, err: &mut err, input: &mut input, screen };
    let color = no_color.as_deref().is_none_or(str::is_empty);
    let done = dispatch(&cli, &env, color, &mut io).and_then(|()| io.out.flush().map_err(Failure::from));
    match done {
        Ok(()) => Exit::Done.into(),
        Err(failure) => {
            let exit = failure.exit();
            // What was found before it failed is still shown. That stdout or stderr is closed is no news by now.
            let _ = io.out.flush();
            if exit != Exit::Done {
                for problem in failure.to_string().lines() {
                    let _ = writeln!(io.err, "sexton: {}", line(problem));
                }
            }
            exit.into()
        }
    }
}

fn dispatch(cli: &Cli, env: &dyn Env, color: bool, io: &mut Io<'_>) -> Result<(), Failure> {
    if cli.verbose && !matches!(cli.command, Command::Run(_)) {
        logging::init_verbose(color);
    }
    match &cli.command {
        Command::Run(args) => wait_for(Threads::Many, run::run(args, env, color)),
        Command::Check(args) => {
            let config = args.source.config(env)?;
            wait_for(Threads::One, async { check::check(&config, &source_ledgers(&config.sources)?, args, io).await })
        }
        Command::Ls(args) => {
            let (sources, rules) = args.source.sources_and_known_rules(env)?;
            wait_for(Threads::One, async { ls::ls(&sources, &ledgers(&sources)?, &rules, args, io).await })
        }
        Command::Show(args) => {
            let sources = args.source.sources(env)?;
            wait_for(Threads::One, async { show::show(&ledgers(&sources)?, args, io).await })
        }
        Command::Errors(args) => {
            let sources = args.source.sources(env)?;
            wait_for(Threads::One, async { errors::errors(&ledgers(&sources)?, args, io).await })
        }
        Command::Explain(args) => {
            let ForRules { sources, rules, .. } = args.ruled.sources_and_rules(env)?;
            let rules = rules.read(&rules.look(), env).map(|book| book.rules).map_err(Failure::from);
            wait_for(Threads::One, async { explain::explain(&ledgers(&sources)?, rules, args, io).await })
        }
        Command::Groups(args) => {
            let (sources, rules) = args.ruled.sources_and_known_rules(env)?;
            wait_for(Threads::One, async { groups::groups(&sources, &ledgers(&sources)?, &rules, args, io).await })
        }
        Command::Retry(args) => {
            let (sources, rules) = args.source.sources_and_known_rules(env)?;
            wait_for(Threads::One, async { act::retry(&ledgers(&sources)?, &rules, args, io).await })
        }
        Command::Rm(args) => {
            let sources = args.source.sources(env)?;
            wait_for(Threads::One, async { act::remove(&ledgers(&sources)?, args, io).await })
        }
        Command::Purge(args) => {
            let sources = args.source.sources(env)?;
            wait_for(Threads::One, async { act::purge(&ledgers(&sources)?, args, io).await })
        }
        Command::Audit(args) => {
            let sources = args.at.sources(env)?;
            wait_for(Threads::One, async { audit::audit(&ledgers(&sources)?, args, io).await })
        }
        Command::Completions(args) => manual::completions(Cli::command(), args, io),
        Command::Man(args) => manual::man(Cli::command(), args, io),
        Command::Rules(args) => {
            let ForRules { sources, rules, .. } = args.verb.ruled().sources_and_rules(env)?;
            let rules = rules.read(&rules.look(), env)?.rules;
            wait_for(Threads::One, async { rules::rules(&sources, &ledgers(&sources)?, &rules, args, io).await })
        }
        Command::Alerts(args) => {
            let ForRules { sources, rules, sample_every } = args.ruled.sources_and_rules(env)?;
            let book = rules.read(&rules.look(), env)?;
            let measure = Measure { rules: &book.alerts, sample_every };
            wait_for(Threads::One, async {
                alerts::alerts(&sources, &source_ledgers(&sources)?, measure, args, io).await
            })
        }
        Command::Stats(args) => {
            let config = args.source.config_without_rules(env)?;
            wait_for(Threads::One, async { stats::stats(&config, &source_ledgers(&config.sources)?, args, io).await })
        }
        Command::Hooks(args) => {
            let config = args.verb.config().config(env)?;
            wait_for(Threads::One, async { hooks::hooks(&config, &ledgers(&config.sources)?, args, io).await })
        }
        Command::Demo => wait_for(Threads::Many, async {
            let colours = if io.screen.emphasis { demo::Colours::On } else { demo::Colours::Off };
            demo::run(&mut *io.out, colours).await.map_err(of_demo)
        }),
    }
}

/// Output that cannot be written is what it is everywhere; Redis's own errors are of another type.
fn of_demo(error: anyhow::Error) -> Failure {
    error.downcast::<std::io::Error>().map_or_else(|error| Failure::Failed(format!("{error:#}")), Failure::Output)
}

/// How many threads a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Threads {
    /// A reading command does one thing after the other.
    One,
    /// The sidecar's loops run side by side.
    Many,
}

fn wait_for(threads: Threads, work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let mut builder = match threads {
        Threads::One => tokio::runtime::Builder::new_current_thread(),
        Threads::Many => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime =
        builder.enable_all().build().map_err(|error| Failure::Failed(format!("cannot start threads: {error}")))?;
    let done = runtime.block_on(work);
    runtime.shutdown_timeout(LEFT_BEHIND);
    done
}

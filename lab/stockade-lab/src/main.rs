//! The lab binary: post-mortems, the comparison of locks, fault injection and benchmarks.
//! `stockade`, the binary that serves, contains none of it.

use std::process::ExitCode;

use bench::BenchArguments;
use chaos::cli::Chaos;
use clap::{Parser, Subcommand};
use locks::cli::Locks;
use postmortem::cli::{ActorArguments, Postmortem};

// The same allocator as in the service, so that a baseline is not slower because of it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Replays post-mortems, compares locks, injects faults and measures, on real servers.
#[derive(Parser)]
#[command(name = "stockade-lab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Replays oversell post-mortems on real servers. Without a case it lists them.
    ///
    /// Exit status 0: every case ended as expected; 1: one did not; 2: an error.
    Postmortem(Postmortem),
    /// Compares locks under the same faults and the same load.
    #[command(subcommand)]
    Locks(Locks),
    /// Injects faults into a running sale, and checks every acknowledgement afterwards.
    ///
    /// Exit status 0: no violation; 1: a violation; 2: an error.
    Chaos(Chaos),
    /// Measures every performance goal and its baseline.
    ///
    /// Exit status 0: every goal is met; 1: one is not, or something drifted; 2: an error.
    Bench(BenchArguments),
    /// Runs one actor of a post-mortem in this process.
    #[command(hide = true)]
    Actor(ActorArguments),
}

#[tokio::main]
async fn main() -> ExitCode {
    // In a build together with `stockade`, HTTP clients expect a provider, as the service's do.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // The service disables huge pages as well; the benchmarks compare resident memory.
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_thp_disable(true);
    let done = match Cli::parse().command {
        Command::Postmortem(arguments) => {
            postmortem::cli::postmortem(arguments, vec!["actor".into()]).await
        }
        Command::Locks(command) => locks::cli::locks(command, vec!["locks".into()]).await,
        Command::Chaos(arguments) => chaos::cli::chaos(arguments).await,
        Command::Bench(arguments) => bench::run(arguments).await,
        Command::Actor(arguments) => postmortem::cli::actor(arguments).await,
    };
    done.unwrap_or_else(|error| {
        eprintln!("stockade-lab: {error:#}");
        ExitCode::from(2)
    })
}

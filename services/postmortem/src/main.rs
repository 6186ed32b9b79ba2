//! The lab alone: what `stockade postmortem` and `stockade locks` do, without the rest of `stockade`. Quick to build while a case is written.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use postmortem::{
    cli::{self, ActorArguments, Postmortem},
    matrix::cli::{Locks, locks},
};

#[derive(Parser)]
#[command(name = "postmortem", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    postmortem: Postmortem,
}

#[derive(Subcommand)]
enum Command {
    /// Plays a part.
    #[command(hide = true)]
    Actor(ActorArguments),
    /// About locks.
    #[command(subcommand)]
    Locks(Locks),
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Some(Command::Actor(arguments)) => cli::actor(arguments).await,
        Some(Command::Locks(command)) => locks(command, vec!["actor".into()]).await,
        None => cli::postmortem(cli.postmortem, vec!["actor".into()]).await,
    };
    done.unwrap_or_else(|error| {
        eprintln!("postmortem: {error:#}");
        ExitCode::from(2)
    })
}

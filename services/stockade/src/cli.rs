//! The command line.
//!
//! Exit status: 0 done; 1 `audit` found drift or an oversell, `reconcile` found or left something to be done,
//! `postmortem` or `locks compare` saw something else than it should; 2 anything else went wrong. Those of `lock` are its own: see its help.

use std::{
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use domain::{BuyerId, ItemId};
use postmortem::{
    cli::{ActorArguments, Postmortem},
    matrix::cli::{Locks, locks},
};
use tracing_subscriber::EnvFilter;

use crate::{
    audit,
    lock::{self, LockCommand},
    plan::{self, PlanArguments},
    reconcile, roles,
    settings::{self, Layers, Settings},
    up,
};

/// What `lock` logs unless it is told to: its standard error is also that of the command that it runs. That a lease is not extended is tried
/// again many times, and the end of it is said anyway.
const LOCK_LOG: &str = "warn,lock::guard=error";

/// Sells limited stock to a crowd without overselling, stranding a unit or losing an acknowledged order.
#[derive(Parser)]
#[command(name = "stockade", version)]
struct Cli {
    /// The folder that holds `stockade.toml` (settings, if you write one) and what `up` keeps.
    #[arg(long, global = true, value_name = "D", default_value = ".stockade")]
    dir: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Try it: starts private Redis servers and an embedded ledger in the folder, opens a demo item, and serves until Ctrl-C.
    ///
    /// REDIS_URL, LOCK_URLS and DATABASE_URL, where set, are used instead of private servers. The folder keeps its data.
    Up,
    /// Serves, on the Redis and the ledger of the settings.
    Serve,
    /// Brings the ledger's schema up to date. `serve` and `up` do it too.
    Migrate,
    /// Proves that nothing of an item was oversold, stranded or lost. Exit status 1 if something was.
    Audit {
        /// The item.
        item: String,
        /// Print JSON, not a table.
        #[arg(long)]
        json: bool,
    },
    /// Says what is wrong with an item (which segment, how many units, which outbox entries) and puts it right, under the item's lock.
    ///
    /// Exit status 0: nothing is left to be done; 1: something is (with --dry-run: would be); 2: an error.
    Reconcile {
        /// The item.
        item: String,
        /// Only say what would be done.
        #[arg(long)]
        dry_run: bool,
        /// Print JSON, not a table.
        #[arg(long)]
        json: bool,
    },
    /// Runs a command under a lock, or shows who has a lock.
    #[command(subcommand)]
    Lock(LockCommand),
    /// Replays oversell post-mortems on real servers: the way that failed, and each remedy. Without a case it lists them.
    ///
    /// Exit status 0: every case showed what its story says; 1: one did not; 2: an error.
    Postmortem(Postmortem),
    /// Compares locks: the same faults and the same load for each.
    #[command(subcommand)]
    Locks(Locks),
    /// Plays a part in a post-mortem, or in a trial of a lock.
    #[command(hide = true)]
    PostmortemActor(ActorArguments),
    /// Prints a token.
    #[command(subcommand)]
    Token(Token),
    Plan(PlanArguments),
    /// Prints the effective settings, secrets hidden.
    Config,
}

#[derive(Subcommand)]
enum Token {
    /// A buyer's, as the shop's login would issue it (needs the HS256 secret).
    Buyer {
        /// The buyer.
        name: String,
        /// Hours for which it is good.
        #[arg(long, default_value_t = 24 * 30)]
        hours: u32,
    },
    /// The admins'.
    Admin,
}

/// Does what the command line says.
pub async fn run() -> Result<ExitCode> {
    let matches = settings::add_flags(Cli::command()).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let layers = Layers::read(&cli.dir, &matches)?;
    match cli.command {
        Command::Lock(command) => {
            log(&layers
                .unless_default("log")
                .unwrap_or_else(|| LOCK_LOG.into()))?;
            lock::lock(command, &layers).await
        }
        // The lab starts servers of its own, and no setting of an engine concerns it.
        Command::Postmortem(arguments) => {
            postmortem::cli::postmortem(arguments, vec!["postmortem-actor".into()]).await
        }
        Command::Locks(command) => locks(command, vec!["postmortem-actor".into()]).await,
        Command::PostmortemActor(arguments) => postmortem::cli::actor(arguments).await,
        // No server, and no setting.
        Command::Plan(arguments) => plan::plan(&arguments),
        command => engine(command, &cli.dir, &layers).await,
    }
}

/// What is about the engine, and takes all of its settings.
async fn engine(command: Command, dir: &Path, layers: &Layers) -> Result<ExitCode> {
    let settings = Settings::from_layers(layers)?;
    log(&settings.log)?;
    match command {
        Command::Up => up::up(dir, settings).await.map(|()| ExitCode::SUCCESS),
        Command::Serve => roles::serve(settings).await.map(|()| ExitCode::SUCCESS),
        Command::Migrate => migrate(&settings).await,
        Command::Audit { item, json } => audit::audit(&settings, &ItemId::new(item)?, json).await,
        Command::Reconcile {
            item,
            dry_run,
            json,
        } => reconcile::reconcile(&settings, &ItemId::new(item)?, dry_run, json).await,
        Command::Token(token) => print_token(&settings, &token),
        Command::Config => print(&layers.describe()),
        Command::Lock(command) => lock::lock(command, layers).await,
        Command::Postmortem(_)
        | Command::Locks(_)
        | Command::PostmortemActor(_)
        | Command::Plan(_) => unreachable!("taken care of before"),
    }
}

fn log(filter: &str) -> Result<()> {
    let filter = EnvFilter::try_new(filter)
        .context("STOCKADE_LOG: expected a filter such as `info` or `stock=debug,info`")?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    Ok(())
}

async fn migrate(settings: &Settings) -> Result<ExitCode> {
    roles::open_ledger(settings).await?;
    print("the ledger's schema is up to date\n")
}

fn print_token(settings: &Settings, token: &Token) -> Result<ExitCode> {
    let token = match token {
        Token::Admin => settings.admin_token()?.to_owned(),
        Token::Buyer { name, hours } => {
            let lifetime = Duration::from_secs(u64::from(*hours) * 3600);
            if settings.jwt_public_key.is_some() {
                anyhow::bail!(
                    "STOCKADE_JWT_PUBLIC_KEY is set: only who has the private key can issue buyers' tokens"
                );
            }
            let buyer = BuyerId::new(name)
                .map_err(|error| anyhow::anyhow!("NAME: expected {}", error.expected))?;
            order::mint_buyer_token(settings.jwt_secret()?.as_bytes(), &buyer, lifetime)
                .context("the token could not be signed")?
        }
    };
    print(&format!("{token}\n"))
}

/// Writes what the user asked for. One who has stopped reading (`| head`) has got it.
pub fn write_out(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

fn print(text: &str) -> Result<ExitCode> {
    write_out(text).map(|()| ExitCode::SUCCESS)
}

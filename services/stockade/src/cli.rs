//! The command line.
//!
//! Exit status: 0 success; 1 `audit` found drift or an oversell, `reconcile` found or left work to
//! do, `preflight` found a failure, `health` got no answer, or `items archive`, `items drop` and
//! `buyers erase` found something open; 2 any other error. `lock` has further exit statuses, which
//! its help lists.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use domain::{BuyerId, ItemId};

use crate::{
    api::{self, ApiCommand, OnTheStores},
    archive, audit,
    buyers::{self, BuyersCommand},
    drops::{self, DropArguments},
    health,
    lock::{self, LockCommand},
    log,
    output::write_out,
    plan::{self, PlanArguments},
    preflight::{self, PreflightArguments},
    reconcile::{self, Extent},
    roles,
    settings::{self, Layers, Settings},
    up,
};

/// Default log filter of `lock`, whose standard error is shared with the command that it runs.
///
/// Failed extensions of a lease are left out: they are retried many times, and `lock` reports the
/// loss of the lease anyway.
const LOCK_LOG: &str = "warn,lock::guard=error";

/// Sells limited stock to a crowd, without overselling, stranding a unit or losing an acknowledged
/// order.
///
/// New here: `stockade up` starts everything on this machine and prints what to try next.
#[derive(Parser)]
#[command(name = "stockade", version)]
struct Cli {
    /// Folder of `stockade.toml`, your settings file (optional), and of the data of `up`.
    #[arg(long, global = true, value_name = "D", default_value = ".stockade")]
    dir: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start here: runs everything on this machine, with a demo item, until Ctrl-C.
    ///
    /// It starts private Redis servers and an embedded ledger in the folder, and prints commands to
    /// try. Set REDIS_URL, LOCK_URLS or DATABASE_URL to use your own servers instead. The folder
    /// keeps its data for the next start.
    Up,
    /// Runs the service in production, with the Redis and the ledger of your settings.
    Serve,
    /// Updates the ledger's schema. `up` does it too, and `serve` with STOCKADE_MIGRATE=on.
    Migrate,
    /// Checks whether the process lives that serves at STOCKADE_LISTEN on this machine.
    ///
    /// Exit status 0: it answers; 1: it does not.
    Health {
        /// Check whether it can sell, too: its Redis and its ledger answer.
        #[arg(long)]
        ready: bool,
    },
    Preflight(PreflightArguments),
    /// Checks that no unit of an item was oversold, stranded or lost.
    ///
    /// It compares the stock in Redis with the counters of the ledger, at once, and says when the
    /// counters were last compared with the orders themselves. With --full it compares them, which
    /// reads every order of the item.
    ///
    /// Exit status 0: every unit is accounted for; 1: drift or an oversell; 2: an error.
    Audit {
        /// Id of the item.
        item: String,
        /// Read every order of the item, and print to stderr how far it is.
        #[arg(long)]
        full: bool,
        /// Print JSON instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Shows which segments of an item need repair, and repairs them.
    ///
    /// The plan names the segment, the units and the outbox entries. The repair runs under the
    /// item's lock.
    ///
    /// Exit status 0: no work is left; 1: work is left (with --dry-run: work is planned); 2: an
    /// error.
    Reconcile {
        /// Id of the item.
        item: String,
        /// Print the plan only, and change nothing.
        #[arg(long, conflicts_with = "rebuild")]
        dry_run: bool,
        /// First drop what Redis has stored of the item's orders, and restore it from the ledger:
        /// after the ledger was restored from a backup.
        #[arg(long)]
        rebuild: bool,
        /// Print JSON instead of a table.
        #[arg(long)]
        json: bool,
    },
    #[command(flatten)]
    Api(ApiCommand),
    /// Erases the name of a buyer.
    #[command(subcommand)]
    Buyers(BuyersCommand),
    /// Runs a command under a distributed lock, or shows the holder of a lock.
    #[command(subcommand)]
    Lock(LockCommand),
    /// Prints an access token for the API.
    #[command(subcommand)]
    Token(Token),
    Plan(PlanArguments),
    /// Prints the effective settings and their origin, with secrets hidden.
    Config,
    /// Prints a script that completes commands and flags in this shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
}

#[derive(Subcommand)]
enum Token {
    /// A buyer's token, as your login would issue it (needs STOCKADE_JWT_SECRET).
    Buyer {
        /// Id of the buyer.
        name: String,
        /// Hours until the token expires.
        #[arg(long, default_value_t = 24 * 30)]
        hours: u32,
    },
    /// The token of the admins.
    Admin,
}

/// Runs the command line.
pub async fn run() -> Result<ExitCode> {
    let matches = settings::add_flags(Cli::command()).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let layers = Layers::read(&cli.dir, &matches)?;
    match cli.command {
        Command::Lock(command) => {
            let filter = layers.unless_default("log");
            log::start(
                filter.as_deref().unwrap_or(LOCK_LOG),
                settings::Log::log_format(&layers)?,
            )?;
            lock::lock(command, &layers).await
        }
        Command::Api(command) => {
            if let Some(command) = command.on_the_stores() {
                let settings = Settings::from_layers(&layers)?;
                log::start(&settings.log.log, settings.log.log_format)?;
                return match command {
                    OnTheStores::Archive(item) => {
                        archive::archive(&settings, &ItemId::new(item)?).await
                    }
                    OnTheStores::Drop { item, after_days } => {
                        let item = ItemId::new(item)?;
                        let arguments = DropArguments { item, after_days };
                        drops::drop_item(&settings, &cli.dir, &arguments).await
                    }
                };
            }
            let log = settings::Log::read(&layers)?;
            log::start(&log.log, log.log_format)?;
            api::run(command, &cli.dir, &layers).await
        }
        Command::Completions { shell } => complete(shell),
        // `plan` needs no server and no setting.
        Command::Plan(arguments) => plan::plan(&arguments),
        Command::Health { ready } => health::health(&layers, ready).await,
        command => engine(command, &cli.dir, &layers).await,
    }
}

/// Commands of the engine, which read all settings.
async fn engine(command: Command, dir: &Path, layers: &Layers) -> Result<ExitCode> {
    let settings = Settings::from_layers(layers)?;
    log::start(&settings.log.log, settings.log.log_format)?;
    match command {
        Command::Up => up::up(dir, settings).await.map(|()| ExitCode::SUCCESS),
        Command::Serve => roles::serve(settings).await.map(|()| ExitCode::SUCCESS),
        Command::Migrate => migrate(&settings).await,
        Command::Preflight(arguments) => preflight::preflight(&settings, &arguments).await,
        Command::Audit { item, full, json } => {
            audit::audit(&settings, &ItemId::new(item)?, full, json).await
        }
        Command::Reconcile {
            item,
            dry_run,
            rebuild,
            json,
        } => {
            let extent = match (dry_run, rebuild) {
                (true, _) => Extent::DryRun,
                (false, true) => Extent::Rebuild,
                (false, false) => Extent::Plan,
            };
            reconcile::reconcile(&settings, &ItemId::new(item)?, extent, json).await
        }
        Command::Buyers(command) => buyers::run(&settings, command).await,
        Command::Token(token) => print_token(&settings, &token),
        Command::Config => print(&described(&settings, layers)),
        Command::Lock(command) => lock::lock(command, layers).await,
        Command::Api(_)
        | Command::Completions { .. }
        | Command::Plan(_)
        | Command::Health { .. } => {
            unreachable!("`run` handles commands that need no store")
        }
    }
}

/// Every setting, and why `serve` would refuse them together.
fn described(settings: &Settings, layers: &Layers) -> String {
    let mut text = layers.describe();
    if let Err(error) = settings.check_audience() {
        text += &format!("# With these settings `serve` does not start. {error}\n");
    }
    text
}

fn complete(shell: Shell) -> Result<ExitCode> {
    let (mut command, mut script) = (settings::add_flags(Cli::command()), Vec::new());
    clap_complete::generate(shell, &mut command, "stockade", &mut script);
    print(&String::from_utf8(script)?)
}

async fn migrate(settings: &Settings) -> Result<ExitCode> {
    roles::migrated_ledger(settings).await?;
    print("the ledger's schema is up to date\n")
}

fn print_token(settings: &Settings, token: &Token) -> Result<ExitCode> {
    let token = match token {
        Token::Admin => settings.admin_token()?.to_owned(),
        Token::Buyer { name, hours } => {
            let lifetime = Duration::from_secs(u64::from(*hours) * 3600);
            if settings.access.jwt_public_key.is_some() {
                anyhow::bail!(
                    "STOCKADE_JWT_PUBLIC_KEY is set: issue buyers' tokens with its private key, which `stockade` does not have"
                );
            }
            let buyer = BuyerId::addressable(name)
                .map_err(|error| anyhow::anyhow!("NAME: expected {}", error.expected))?;
            let secret = settings.jwt_secret()?.as_bytes();
            order::mint_buyer_token(secret, &buyer, lifetime, &settings.access.token_policy())
                .context("cannot sign the token")?
        }
    };
    print(&format!("{token}\n"))
}

fn print(text: &str) -> Result<ExitCode> {
    write_out(text).map(|()| ExitCode::SUCCESS)
}

//! The servers that Stockade is compared with over HTTP. Each is a separate process, as Stockade
//! is.
//!
//! `bare` is the ceiling. The others are what a team would write instead, and keep their orders in
//! PostgreSQL. They use the same serving code, the same check of the buyer's token, the same shape
//! of request and answer, and the same allocator. All but one have no limit per buyer, no index of
//! holds and no check of a reused key, and none has a log, so the comparison favours them.

mod bare;
mod batches;
mod http;
mod sql;
mod transaction;

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use testbed::{Daemon, Postgres, free_port, timeout};
use tokio::{net::TcpStream, time::sleep};

use self::sql::Duties;
use crate::{
    buyers::Crowd,
    options::Options,
    programs,
    wrk::{Answered, Load, load},
};

const WARM_SECONDS: u64 = 1;
/// The item that every baseline sells.
const ITEM: &str = "bench";

/// A baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// An axum handler that reads the order, does nothing, and answers in the same shape.
    Bare,
    /// One transaction for each order, on one row of stock.
    Transaction,
    /// One transaction for all orders that arrived during the previous commit.
    Batches,
    /// The same with a limit per buyer, an index of holds, and the first answer for a repeat.
    Duties,
}

impl Kind {
    fn duties(self) -> Duties {
        match self {
            Self::Duties => Duties::Same,
            Self::Bare | Self::Transaction | Self::Batches => Duties::None,
        }
    }
}

/// Arguments of a baseline process.
#[derive(Debug, Clone, Args)]
pub struct ServeBaseline {
    kind: Kind,
    #[arg(long)]
    listen: SocketAddr,
    #[arg(long)]
    database_url: Option<String>,
}

impl ServeBaseline {
    /// Serves until it is killed.
    pub async fn serve(&self) -> Result<()> {
        let listener =
            order::listen(self.listen).with_context(|| format!("--listen: {}", self.listen))?;
        let url = || {
            self.database_url.as_deref().context(
                "--database-url: expected the database in which the baseline keeps its orders",
            )
        };
        match self.kind {
            Kind::Bare => bare::serve(listener).await,
            Kind::Transaction => {
                http::serve(listener, transaction::Transactions::open(url()?).await?).await
            }
            Kind::Batches | Kind::Duties => {
                let batches = batches::Batches::open(url()?, self.kind.duties()).await?;
                http::serve(listener, batches).await
            }
        }
    }
}

/// Measures a baseline around another measurement: half of the time before it and half after it.
///
/// A machine that becomes faster or slower meanwhile affects both. Returns the orders per second of
/// the baseline, and the result of `what`.
pub async fn around<T>(
    kind: Kind,
    options: &Options,
    crowd: &Crowd,
    what: impl Future<Output = Result<T>>,
) -> Result<(f64, T)> {
    let before = half(kind, options, crowd).await?;
    let done = what.await?;
    let after = half(kind, options, crowd).await?;
    Ok((f64::midpoint(before, after), done))
}

/// One half, on private servers: work that a server does after its load would disturb the next one.
async fn half(kind: Kind, options: &Options, crowd: &Crowd) -> Result<f64> {
    let seconds = options.seconds.div_ceil(2);
    let answered = if kind == Kind::Bare {
        Baseline::bare()
            .await?
            .load(crowd, options.connections, seconds)
            .await?
    } else {
        let postgres = Postgres::start().await?;
        Baseline::with_orders(kind, &postgres)
            .await?
            .load(crowd, options.connections, seconds)
            .await?
    };
    Ok(answered.per_second())
}

/// A baseline that serves. Dropping it kills it.
struct Baseline {
    _process: Daemon,
    url: String,
    /// Database of its orders, if it keeps any.
    database_url: Option<String>,
    duties: Duties,
    _log: tempfile::NamedTempFile,
}

impl Baseline {
    /// The ceiling.
    async fn bare() -> Result<Self> {
        Self::start(Kind::Bare, None).await
    }

    /// A baseline that keeps its orders in a new database of this server.
    async fn with_orders(kind: Kind, postgres: &Postgres) -> Result<Self> {
        let name = format!("baseline_{kind:?}").to_lowercase();
        let database_url = postgres.create_database(&name).await?;
        sql::create(&database_url, ITEM, kind.duties()).await?;
        Self::start(kind, Some(database_url)).await
    }

    async fn start(kind: Kind, database_url: Option<String>) -> Result<Self> {
        let address = format!("127.0.0.1:{}", free_port().await);
        let (program, listen, database) = (
            programs::ourselves()?,
            address.clone(),
            database_url.clone(),
        );
        let name = kind
            .to_possible_value()
            .map(|value| value.get_name().to_owned())
            .unwrap_or_default();
        let log = tempfile::NamedTempFile::new()?;
        let command = move || {
            let mut command = programs::unsteered(&program);
            command.args(["bench", "serve-baseline", &name, "--listen", &listen]);
            command.args(database.iter().flat_map(|url| ["--database-url", url]));
            command
        };
        let process = Daemon::start("a baseline", log.path(), command).await?;
        let baseline = Self {
            _process: process,
            url: format!("http://{address}"),
            database_url,
            duties: kind.duties(),
            _log: log,
        };
        baseline.until_ready(&address).await?;
        Ok(baseline)
    }

    async fn until_ready(&self, address: &str) -> Result<()> {
        let limit = timeout();
        let until = Instant::now() + limit;
        while TcpStream::connect(address).await.is_err() {
            let log = || std::fs::read_to_string(self._log.path()).unwrap_or_default();
            ensure!(
                Instant::now() < until,
                "a baseline was not ready after {limit:?}: {}",
                log()
            );
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Runs a closed loop of orders, after a warm-up that checks every answer. Every acknowledged
    /// order must be in the baseline's table.
    async fn load(&self, crowd: &Crowd, connections: u32, seconds: u64) -> Result<Answered> {
        let order = Load::warm(&self.url, ITEM, crowd.tokens(), connections, WARM_SECONDS);
        let warm = load(order).await?;
        ensure!(
            warm.statuses.keys().eq([&201]),
            "a baseline answered {:?}, not all 201",
            warm.statuses
        );
        let before = self.sold().await?;
        let answered = load(Load {
            run: "run",
            seconds,
            statuses: false,
            ..order
        })
        .await?;
        ensure!(
            answered.refused == 0,
            "a baseline refused {} orders",
            answered.refused
        );
        if let Some((before, after)) = before.zip(self.sold().await?) {
            let (sold, most) = (after - before, answered.answers + u64::from(connections));
            ensure!(
                (answered.answers..=most).contains(&sold),
                "a baseline acknowledged {} orders and recorded {sold}",
                answered.answers
            );
        }
        Ok(answered)
    }

    /// Number of its recorded orders, which must equal the units missing from its stock. Waits for
    /// the orders of closed connections.
    async fn sold(&self) -> Result<Option<u64>> {
        match &self.database_url {
            Some(url) => sql::sold(url, ITEM, self.duties).await.map(Some),
            None => Ok(None),
        }
    }
}

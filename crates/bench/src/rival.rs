//! What Stockade is measured beside over HTTP: other servers of the same orders, each a process of its own, as Stockade is.
//!
//! `bare` is the ceiling. The others are what one would write instead, and keep their orders in PostgreSQL: behind the same serving code, the same
//! check of the buyer's token, the same shape of request and answer, and the same allocator. They have neither a limit for each buyer, nor an end of a hold, nor
//! a log: the comparison is in their favour.

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
use testbed::{Daemon, Postgres, free_port};
use tokio::{net::TcpStream, time::sleep};

use crate::{
    buyers::Crowd,
    cli::Bench,
    programs,
    wrk::{Answered, Load, load},
};

const READY_WITHIN: Duration = Duration::from_secs(20);
const WARM_SECONDS: u64 = 1;
/// What they sell.
const ITEM: &str = "bench";

/// Who serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// An axum handler that reads the order, does nothing, and answers in the same shape.
    Bare,
    /// One transaction for each order, on one row of stock.
    Transaction,
    /// One transaction for all orders that came while the last one was committed.
    Batches,
}

/// What a rival is told.
#[derive(Debug, Clone, Args)]
pub struct ServeRival {
    kind: Kind,
    #[arg(long)]
    listen: SocketAddr,
    #[arg(long)]
    database_url: Option<String>,
}

impl ServeRival {
    /// Serves until it is killed.
    pub async fn serve(&self) -> Result<()> {
        let listener =
            order::listen(self.listen).with_context(|| format!("--listen: {}", self.listen))?;
        let url = || {
            self.database_url
                .as_deref()
                .context("--database-url: the rival keeps its orders there")
        };
        match self.kind {
            Kind::Bare => bare::serve(listener).await,
            Kind::Transaction => {
                http::serve(listener, transaction::Transactions::open(url()?).await?).await
            }
            Kind::Batches => http::serve(listener, batches::Batches::open(url()?).await?).await,
        }
    }
}

/// Measures a rival around something else, half of the time before it and half after: a machine that becomes faster or slower meanwhile does so for
/// both. Returns the orders that the rival answered in a second.
pub async fn around<T>(
    kind: Kind,
    bench: &Bench,
    crowd: &Crowd,
    what: impl Future<Output = Result<T>>,
) -> Result<(f64, T)> {
    let before = half(kind, bench, crowd).await?;
    let done = what.await?;
    let after = half(kind, bench, crowd).await?;
    Ok((f64::midpoint(before, after), done))
}

/// On servers of its own: what they do after their load would be in the way of what comes next.
async fn half(kind: Kind, bench: &Bench, crowd: &Crowd) -> Result<f64> {
    let seconds = bench.seconds.div_ceil(2);
    let answered = if kind == Kind::Bare {
        Rival::bare()
            .await?
            .load(crowd, bench.connections, seconds)
            .await?
    } else {
        let postgres = Postgres::start().await?;
        Rival::with_orders(kind, &postgres)
            .await?
            .load(crowd, bench.connections, seconds)
            .await?
    };
    Ok(answered.per_second())
}

/// A rival that serves. Dropping it kills it.
struct Rival {
    _process: Daemon,
    url: String,
    /// Where its orders are, if it keeps any.
    database_url: Option<String>,
    _log: tempfile::NamedTempFile,
}

impl Rival {
    /// The ceiling.
    async fn bare() -> Result<Self> {
        Self::start(Kind::Bare, None).await
    }

    /// One that keeps its orders in a new database of this server.
    async fn with_orders(kind: Kind, postgres: &Postgres) -> Result<Self> {
        let name = format!("rival_{kind:?}").to_lowercase();
        let database_url = postgres.create_database(&name).await?;
        sql::create(&database_url, ITEM).await?;
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
            command.args(["serve-rival", &name, "--listen", &listen]);
            command.args(database.iter().flat_map(|url| ["--database-url", url]));
            command
        };
        let process = Daemon::start("a rival", log.path(), command).await?;
        let rival = Self {
            _process: process,
            url: format!("http://{address}"),
            database_url,
            _log: log,
        };
        rival.until_ready(&address).await?;
        Ok(rival)
    }

    async fn until_ready(&self, address: &str) -> Result<()> {
        let until = Instant::now() + READY_WITHIN;
        while TcpStream::connect(address).await.is_err() {
            let said = || std::fs::read_to_string(self._log.path()).unwrap_or_default();
            ensure!(Instant::now() < until, "a rival does not serve: {}", said());
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Orders of it in a closed loop, after a warm-up in which every answer is looked at. Every order that it acknowledges must be in its books.
    async fn load(&self, crowd: &Crowd, connections: u32, seconds: u64) -> Result<Answered> {
        let order = Load::warm(&self.url, ITEM, crowd.tokens(), connections, WARM_SECONDS);
        let warm = load(order).await?;
        ensure!(
            warm.statuses.keys().eq([&201]),
            "a rival answered {:?}, not all 201",
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
            "a rival refused {} orders",
            answered.refused
        );
        if let Some((before, after)) = before.zip(self.sold().await?) {
            let (sold, most) = (after - before, answered.answers + u64::from(connections));
            ensure!(
                (answered.answers..=most).contains(&sold),
                "a rival acknowledged {} orders and recorded {sold}",
                answered.answers
            );
        }
        Ok(answered)
    }

    /// Its orders, which must be what its stock is short of. Waits for those whose buyers have hung up.
    async fn sold(&self) -> Result<Option<u64>> {
        match &self.database_url {
            Some(url) => sql::sold(url, ITEM).await.map(Some),
            None => Ok(None),
        }
    }
}

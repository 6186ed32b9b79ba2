//! A sale whose stock is a counter in Redis, decremented by an atomic script, and a ledger that may
//! have to accept each sale.
//!
//! A unit counts as sold if its buyer was told so, even if servers have lost it since.

use std::time::Duration;

use anyhow::Result;
use redis::{AsyncCommands, Script, aio::MultiplexedConnection};
use sqlx::{ConnectOptions, Connection, PgConnection, postgres::PgConnectOptions};

use crate::{
    measurements::Measurements,
    test_env::{self, TestEnv},
    timeline::{Event, Lane},
};

const STOCK: &str = "stock";
/// Time to wait for a replica. A replica in sync answers within a millisecond, on a busy machine
/// within a hundred.
const WAIT_TIMEOUT: Duration = Duration::from_millis(500);

/// All answers to buyers, at any till.
pub(super) struct CounterSale<'a> {
    env: &'a TestEnv,
    stock: u64,
    sold: u64,
    refused: u64,
}

/// A place where buyers arrive.
pub(super) struct Till {
    lane: Lane,
    redis: MultiplexedConnection,
    /// Ledger that must accept a sale before it counts.
    ledger: Option<LedgerRow>,
    /// Whether a sale counts only after a replica has confirmed it.
    waits: bool,
}

/// Answer to one buyer.
enum Answer {
    Sold(i64),
    Refused(&'static str),
}

impl<'a> CounterSale<'a> {
    /// Creates a sale in which nothing is sold yet.
    pub(super) fn new(env: &'a TestEnv, stock: u64) -> Self {
        Self {
            env,
            stock,
            sold: 0,
            refused: 0,
        }
    }

    /// Writes the stock to a server.
    pub(super) async fn fill(&self, url: &str) -> Result<()> {
        self.env.timeline.stock(i64::try_from(self.stock)?);
        Ok(test_env::connect(url).await?.set(STOCK, self.stock).await?)
    }

    /// Serves this number of buyers, one after the other.
    pub(super) async fn serve(&mut self, till: &mut Till, buyers: usize) -> Result<()> {
        for _ in 0..buyers {
            match till.sell().await? {
                Answer::Sold(left) => {
                    self.sold += 1;
                    self.env.timeline.stock(left);
                    let event = if self.sold > self.stock {
                        Event::Harm
                    } else {
                        Event::Sale
                    };
                    till.lane.notes(event, format!("sold; {left} left here"));
                }
                Answer::Refused(why) => {
                    self.refused += 1;
                    till.lane.notes(Event::Refused, why);
                }
            }
        }
        Ok(())
    }

    /// Counts the answers. Units that are left are stranded if a buyer was refused.
    pub(super) fn count(&self) -> Measurements {
        let stranded = if self.refused > 0 {
            self.stock.saturating_sub(self.sold)
        } else {
            0
        };
        Measurements::new().judge_sale(self.stock, self.sold, stranded)
    }
}

impl Till {
    /// Opens a till that sells from this server.
    pub(super) async fn open(lane: Lane, url: &str) -> Result<Self> {
        Ok(Self {
            lane,
            redis: test_env::connect(url).await?,
            ledger: None,
            waits: false,
        })
    }

    /// Makes the till ask this ledger.
    pub(super) fn with(mut self, ledger: Option<LedgerRow>) -> Self {
        self.ledger = ledger;
        self
    }

    /// Makes the till confirm only sales that a replica has.
    pub(super) fn waiting(mut self, waits: bool) -> Self {
        self.waits = waits;
        self
    }

    async fn sell(&mut self) -> Result<Answer> {
        let left = match self.take().await {
            Err(error) if error.to_string().contains("NOREPLICAS") => {
                return Ok(Answer::Refused("NOREPLICAS"));
            }
            left => left?,
        };
        if left < 0 {
            return Ok(Answer::Refused("sold out"));
        }
        // WAIT counts the writes of its own connection only, so it must use the connection of the
        // sale.
        if self.waits && self.confirmed_replicas().await? == 0 {
            return Ok(Answer::Refused("no replica confirmed"));
        }
        let Some(ledger) = &mut self.ledger else {
            return Ok(Answer::Sold(left));
        };
        Ok(match ledger.accepts().await {
            Ok(true) => Answer::Sold(left),
            Ok(false) => Answer::Refused("the ledger refuses"),
            Err(_) => Answer::Refused("the ledger is unreachable"),
        })
    }

    async fn take(&mut self) -> redis::RedisResult<i64> {
        let script = "local left = tonumber(redis.call('GET', KEYS[1])) if left <= 0 then return -1 end return redis.call('DECR', KEYS[1])";
        Script::new(script)
            .key(STOCK)
            .invoke_async(&mut self.redis)
            .await
    }

    async fn confirmed_replicas(&mut self) -> redis::RedisResult<u64> {
        redis::cmd("WAIT")
            .arg(1)
            .arg(WAIT_TIMEOUT.as_millis() as u64)
            .query_async(&mut self.redis)
            .await
    }
}

/// The row in SQL that counts the sales.
pub(super) struct LedgerRow(PgConnection);

impl LedgerRow {
    /// Creates the row.
    pub(super) async fn create(url: &str, stock: u64) -> Result<Self> {
        let mut row = Self(PgConnection::connect(url).await?);
        sqlx::query("CREATE TABLE ledger (stock BIGINT NOT NULL, sold BIGINT NOT NULL CHECK (sold <= stock))").execute(&mut row.0).await?;
        sqlx::query("INSERT INTO ledger (stock, sold) VALUES ($1, 0)")
            .bind(i64::try_from(stock)?)
            .execute(&mut row.0)
            .await?;
        Ok(row)
    }

    /// Connects to the row through other options, such as a proxy.
    pub(super) async fn reach(options: &PgConnectOptions) -> Result<Self> {
        Ok(Self(options.connect().await?))
    }

    async fn accepts(&mut self) -> sqlx::Result<bool> {
        let accepted = sqlx::query("UPDATE ledger SET sold = sold + 1 WHERE sold < stock")
            .execute(&mut self.0)
            .await?;
        Ok(accepted.rows_affected() == 1)
    }
}

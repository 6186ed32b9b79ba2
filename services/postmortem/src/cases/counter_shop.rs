//! A shop whose stock is a counter in Redis, taken from by an atomic script, and the ledger that it may ask before a sale counts.
//!
//! What is counted as sold is what buyers were told, whatever any server has of it afterwards.

use std::time::Duration;

use anyhow::Result;
use redis::{AsyncCommands, Script, aio::MultiplexedConnection};
use sqlx::{ConnectOptions, Connection, PgConnection, postgres::PgConnectOptions};

use crate::{
    evidence::Evidence,
    stage::{self, Stage},
    timeline::{Event, Lane},
};

const STOCK: &str = "stock";
/// How long replicas are waited for. One that follows answers within a millisecond, on a busy machine within a hundred.
const WAIT: Duration = Duration::from_millis(500);

/// Everything that was told to buyers, wherever they came.
pub(super) struct Shop<'a> {
    stage: &'a Stage,
    stock: u64,
    sold: u64,
    refused: u64,
}

/// One place where buyers come.
pub(super) struct Till {
    lane: Lane,
    redis: MultiplexedConnection,
    /// Whom to ask before a sale counts.
    ledger: Option<LedgerRow>,
    /// A sale counts only when one replica has it.
    waits: bool,
}

/// What became of one buyer.
enum Answer {
    Sold(i64),
    Refused(&'static str),
}

impl<'a> Shop<'a> {
    /// Nothing sold yet.
    pub(super) fn new(stage: &'a Stage, stock: u64) -> Self {
        Self {
            stage,
            stock,
            sold: 0,
            refused: 0,
        }
    }

    /// Puts the stock on a server.
    pub(super) async fn fill(&self, url: &str) -> Result<()> {
        self.stage.timeline.stock(i64::try_from(self.stock)?);
        Ok(stage::connect(url).await?.set(STOCK, self.stock).await?)
    }

    /// So many buyers come, one after the other.
    pub(super) async fn serves(&mut self, till: &mut Till, buyers: usize) -> Result<()> {
        for _ in 0..buyers {
            match till.asks().await? {
                Answer::Sold(left) => {
                    self.sold += 1;
                    self.stage.timeline.stock(left);
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

    /// What the buyers were told. Whoever was refused while something was left could have had it.
    pub(super) fn count(&self) -> Evidence {
        let stranded = if self.refused > 0 {
            self.stock.saturating_sub(self.sold)
        } else {
            0
        };
        Evidence::new()
            .sold(self.stock, self.sold)
            .stranded(stranded)
            .judge_oversold()
            .judge_stranded()
    }
}

impl Till {
    /// One that takes from this server.
    pub(super) async fn open(lane: Lane, url: &str) -> Result<Self> {
        Ok(Self {
            lane,
            redis: stage::connect(url).await?,
            ledger: None,
            waits: false,
        })
    }

    /// It asks this ledger.
    pub(super) fn with(mut self, ledger: Option<LedgerRow>) -> Self {
        self.ledger = ledger;
        self
    }

    /// It tells nobody of a sale that only the master has.
    pub(super) fn waiting(mut self, waits: bool) -> Self {
        self.waits = waits;
        self
    }

    async fn asks(&mut self) -> Result<Answer> {
        let left = match self.take().await {
            Err(error) if error.to_string().contains("NOREPLICAS") => {
                return Ok(Answer::Refused("NOREPLICAS"));
            }
            left => left?,
        };
        if left < 0 {
            return Ok(Answer::Refused("sold out"));
        }
        // On the same connection: WAIT counts the writes of its own one only.
        if self.waits && self.replicas_that_have_it().await? == 0 {
            return Ok(Answer::Refused("no replica has it"));
        }
        let Some(ledger) = &mut self.ledger else {
            return Ok(Answer::Sold(left));
        };
        Ok(match ledger.accepts().await {
            Ok(true) => Answer::Sold(left),
            Ok(false) => Answer::Refused("the ledger refuses"),
            Err(_) => Answer::Refused("the ledger is out of reach"),
        })
    }

    async fn take(&mut self) -> redis::RedisResult<i64> {
        let script = "local left = tonumber(redis.call('GET', KEYS[1])) if left <= 0 then return -1 end return redis.call('DECR', KEYS[1])";
        Script::new(script)
            .key(STOCK)
            .invoke_async(&mut self.redis)
            .await
    }

    async fn replicas_that_have_it(&mut self) -> redis::RedisResult<u64> {
        redis::cmd("WAIT")
            .arg(1)
            .arg(WAIT.as_millis() as u64)
            .query_async(&mut self.redis)
            .await
    }
}

/// The row in SQL that counts the sales.
pub(super) struct LedgerRow(PgConnection);

impl LedgerRow {
    /// A new one.
    pub(super) async fn create(url: &str, stock: u64) -> Result<Self> {
        let mut row = Self(PgConnection::connect(url).await?);
        sqlx::query("CREATE TABLE ledger (stock BIGINT NOT NULL, sold BIGINT NOT NULL CHECK (sold <= stock))").execute(&mut row.0).await?;
        sqlx::query("INSERT INTO ledger (stock, sold) VALUES ($1, 0)")
            .bind(i64::try_from(stock)?)
            .execute(&mut row.0)
            .await?;
        Ok(row)
    }

    /// The same one, from elsewhere.
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

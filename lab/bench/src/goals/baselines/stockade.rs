//! Stockade itself, without HTTP: the stock crate, and for recorded orders the real recorder, the
//! real ledger and PostgreSQL.
//!
//! Each run has its own Redis and database, because a segment's history must not vanish while a
//! recorder reads it.

use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use domain::{Item, Quantity};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use stock::{Acknowledge, Stock};
use testbed::Redis;
use tokio::sync::Mutex;

use super::{test_env::TestEnv, variant::Variant};
use crate::goals::{
    crowd::Reply,
    in_process::{self, Recording},
};

const BATCH_MAX: usize = 256;

/// Stockade in process with one item.
pub struct Stockade {
    stock: Arc<Stock>,
    item: Item,
    recorded: Option<Recorded>,
    // Last, so that it is dropped after its users.
    _redis: Redis,
}

struct Recorded {
    recording: Mutex<Option<Recording>>,
    name: String,
    server: String,
}

impl Stockade {
    pub async fn accepted(segments: u16, units: u64) -> Result<Self> {
        let redis = Redis::start().await?;
        let (stock, item) = (
            in_process::stock(&redis.url(), BATCH_MAX).await?,
            item(segments, units)?,
        );
        stock.open(&item).await?;
        Ok(Self {
            stock,
            item,
            recorded: None,
            _redis: redis,
        })
    }

    pub async fn recorded(env: &TestEnv, segments: u16, units: u64) -> Result<Self> {
        let (name, item) = (env.database(), item(segments, units)?);
        let (url, server) = (
            env.postgres.create_database(&name).await?,
            env.postgres.url("postgres"),
        );
        let ledger = ledger::connect(&url, 1).await?;
        ledger.migrate().await?;
        ledger.create_item(&item).await?;
        let redis = Redis::start().await?;
        let stock = in_process::stock(&redis.url(), BATCH_MAX).await?;
        stock.open(&item).await?;
        let recording = Mutex::new(Some(Recording::start(&redis.url(), &url).await?));
        Ok(Self {
            stock,
            item,
            recorded: Some(Recorded {
                recording,
                name,
                server,
            }),
            _redis: redis,
        })
    }
}

fn item(segments: u16, units: u64) -> Result<Item> {
    in_process::item("hot", units, segments, Some(Quantity::ONE))
}

#[async_trait]
impl Variant for Stockade {
    async fn buy(&self, buyer: u64) -> Result<Reply> {
        let acknowledge = if self.recorded.is_some() {
            Acknowledge::Recorded
        } else {
            Acknowledge::Accepted
        };
        in_process::buy(
            &self.stock,
            &self.item,
            in_process::reservation(&self.item, buyer, acknowledge)?,
        )
        .await
    }

    async fn audit(&self, stock: u64, accepted: u64) -> Result<(i64, u64)> {
        let Some(recorded) = &self.recorded else {
            let logged = in_process::logged(&self.stock, &self.item).await?;
            return Ok((
                logged.drift(stock, accepted),
                logged.taken.saturating_sub(stock),
            ));
        };
        let recording = recorded.recording.lock().await;
        let recording = recording
            .as_ref()
            .ok_or_else(|| anyhow::anyhow!("the recorder has been stopped"))?;
        recording.audit(&self.stock, &self.item, accepted).await
    }

    async fn end(&self) -> Result<()> {
        self.stock.shutdown().await;
        if let Some(Recorded {
            recording,
            name,
            server,
        }) = &self.recorded
        {
            if let Some(recording) = recording.lock().await.take() {
                recording.stop().await?;
            }
            let mut connection = PgConnection::connect(server).await?;
            sqlx::raw_sql(AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)")))
                .execute(&mut connection)
                .await?;
        }
        Ok(())
    }
}

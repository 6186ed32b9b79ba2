//! The whole order step as one script in Redis, called once for each order: through a pool of
//! connections, or over one that all share.

use anyhow::{Result, bail};
use async_trait::async_trait;
use deadpool_redis::{Manager, Pool, Runtime};
use domain::{Item, Quantity};
use redis::{
    Cmd, IntoConnectionInfo, Script,
    aio::{ConnectionLike, MultiplexedConnection},
    io::tcp::TcpSettings,
};
use stock::Acknowledge;

use super::variant::{Variant, judge};
use crate::goals::{crowd::Reply, in_process, servers};

const SOURCE: &str = include_str!("order.lua");
const KEYS: [&str; 3] = ["one:stock", "one:buyers", "one:outbox"];

/// The script, shared by both variants.
struct Step {
    script: Script,
    item: Item,
    connection: MultiplexedConnection,
}

impl Step {
    async fn open(url: &str, stock: u64) -> Result<Self> {
        let (mut connection, script) = (servers::connect(url).await?, Script::new(SOURCE));
        redis::cmd("SET")
            .arg(KEYS[0])
            .arg(stock)
            .query_async::<()>(&mut connection)
            .await?;
        script.load_async(&mut connection).await?;
        Ok(Self {
            script,
            item: in_process::item("script", stock, 1, Some(Quantity::ONE))?,
            connection,
        })
    }

    fn command(&self, buyer: u64) -> Result<Cmd> {
        let reservation = in_process::reservation(&self.item, buyer, Acknowledge::Accepted)?;
        let mut command = redis::cmd("EVALSHA");
        command
            .arg(self.script.get_hash())
            .arg(3)
            .arg(&KEYS)
            .arg(reservation.buyer.as_str())
            .arg(&reservation.order.as_bytes()[..]);
        Ok(command)
    }

    async fn audit(&self, stock: u64, accepted: u64) -> Result<(i64, u64)> {
        let mut connection = self.connection.clone();
        let left: i64 = redis::cmd("GET")
            .arg(KEYS[0])
            .query_async(&mut connection)
            .await?;
        let sold: i64 = redis::cmd("HLEN")
            .arg(KEYS[1])
            .query_async(&mut connection)
            .await?;
        judge(stock, left, sold, accepted)
    }
}

async fn call(connection: &mut (impl ConnectionLike + Send), command: &Cmd) -> Result<Reply> {
    let word: String = command.query_async(connection).await?;
    match &*word {
        "t" => Ok(Reply::Sold),
        "s" => Ok(Reply::Refused),
        other => bail!("the script answered {other:?}"),
    }
}

/// Over one connection that all share.
pub struct Shared(Step);

impl Shared {
    pub async fn open(url: &str, stock: u64) -> Result<Self> {
        Ok(Self(Step::open(url, stock).await?))
    }
}

#[async_trait]
impl Variant for Shared {
    async fn buy(&self, buyer: u64) -> Result<Reply> {
        call(&mut self.0.connection.clone(), &self.0.command(buyer)?).await
    }

    async fn audit(&self, stock: u64, accepted: u64) -> Result<(i64, u64)> {
        self.0.audit(stock, accepted).await
    }
}

/// Through a pool, which tests a connection before it hands it out.
pub struct Pooled {
    step: Step,
    pool: Pool,
}

impl Pooled {
    pub async fn open(url: &str, connections: usize, stock: u64) -> Result<Self> {
        let info = url
            .into_connection_info()?
            .set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let manager = Manager::new_with_config(info, servers::config())?;
        let pool = Pool::builder(manager)
            .max_size(connections)
            .runtime(Runtime::Tokio1)
            .build()?;
        Ok(Self {
            step: Step::open(url, stock).await?,
            pool,
        })
    }
}

#[async_trait]
impl Variant for Pooled {
    async fn buy(&self, buyer: u64) -> Result<Reply> {
        let command = self.step.command(buyer)?;
        call(&mut self.pool.get().await?, &command).await
    }

    async fn audit(&self, stock: u64, accepted: u64) -> Result<(i64, u64)> {
        self.step.audit(stock, accepted).await
    }

    async fn end(&self) -> Result<()> {
        self.pool.close();
        Ok(())
    }
}

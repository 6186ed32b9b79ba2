//! The servers that a lock is kept on, and what is done to them.
//!
//! What a reader could get wrong: a copy that lags is real for Redis, whose replica is told to leave in its socket what its master sends. For
//! PostgreSQL and MariaDB it is a copy of the data folder that was made before the lock was taken, which is what an asynchronous standby has
//! that received nothing since.

mod database;
mod redis;
mod service;

use std::path::PathBuf;

use anyhow::Result;
use async_trait::async_trait;
use testbed::{Clock, Etcd, MariaDb, Postgres, ZooKeeper};
use tokio::sync::OnceCell;

use super::{
    client::{self, Opening},
    contestant::{Contestant, Home},
    fault::Fault,
};

/// Servers that a lock is kept on.
#[async_trait]
pub(super) trait Site: Send + Sync {
    /// Where they listen now. A file listens nowhere.
    fn ports(&self) -> Vec<u16>;

    /// How clients are told of one that listens on this port.
    fn url(&self, port: u16) -> String;

    /// Gets ready for the fault, once the lock has been used and before it is taken.
    async fn arm(&mut self, _fault: Fault) -> Result<()> {
        Ok(())
    }

    /// Lets it happen.
    async fn strike(&mut self, _fault: Fault) -> Result<()> {
        Ok(())
    }

    /// Of the servers, those that the holder cannot reach, so that all depends on the one that is struck.
    fn beyond(&self) -> &'static [usize] {
        &[]
    }

    /// What the next one's environment must have, for a fault of its machine.
    async fn variables_of_the_next(&self) -> Result<Vec<(&'static str, PathBuf)>> {
        Ok(Vec::new())
    }
}

/// By how much a clock jumps: far beyond every lease.
const AHEAD_MS: i64 = 60_000;

/// The clock of the server that is struck, if that is what is bent.
async fn clock(fault: Fault) -> Result<Option<Clock>> {
    Ok(if fault == Fault::Clock {
        Some(Clock::new().await?)
    } else {
        None
    })
}

/// A server that others use too.
struct Spared {
    port: u16,
    url: fn(u16) -> String,
}

#[async_trait]
impl Site for Spared {
    fn ports(&self) -> Vec<u16> {
        vec![self.port]
    }

    fn url(&self, port: u16) -> String {
        (self.url)(port)
    }
}

/// All of their addresses.
pub(super) fn urls(site: &dyn Site) -> Vec<String> {
    let ports = site.ports();
    if ports.is_empty() {
        vec![site.url(0)]
    } else {
        ports.iter().map(|port| site.url(*port)).collect()
    }
}

/// Servers that take long to start, and that no trial breaks which shares them.
#[derive(Default)]
pub(super) struct Shared {
    postgres: OnceCell<Postgres>,
    mariadb: OnceCell<MariaDb>,
    etcd: OnceCell<Etcd>,
    zookeeper: OnceCell<ZooKeeper>,
}

impl Shared {
    /// Servers for a trial; of its own, if the fault breaks them.
    pub(super) async fn site(
        &self,
        contestant: Contestant,
        fault: Fault,
    ) -> Result<Box<dyn Site + '_>> {
        let home = contestant.home();
        if !fault.spares_the_servers() {
            return own(contestant, home, fault).await;
        }
        let spared = match home {
            Home::Postgres => Spared {
                port: self.postgres().await?.port(),
                url: database::of_postgres,
            },
            Home::MariaDb => Spared {
                port: self.mariadb().await?.port(),
                url: database::of_mariadb,
            },
            Home::Etcd => Spared {
                port: self.etcd.get_or_try_init(Etcd::start).await?.port(),
                url: service::of_etcd,
            },
            Home::ZooKeeper => Spared {
                port: self
                    .zookeeper
                    .get_or_try_init(ZooKeeper::start)
                    .await?
                    .port(),
                url: service::of_zookeeper,
            },
            Home::FiveRedis | Home::OneRedis | Home::Sqlite | Home::Consul => {
                return own(contestant, home, fault).await;
            }
        };
        Ok(Box::new(spared))
    }

    async fn postgres(&self) -> Result<&Postgres> {
        let started = async {
            let server = Postgres::start().await?;
            let url = server.url(database::POSTGRES);
            prepare(
                [
                    Contestant::Postgres,
                    Contestant::PostgresAdvisory,
                    Contestant::PostgresForUpdate,
                ],
                &url,
            )
            .await?;
            anyhow::Ok(server)
        };
        self.postgres.get_or_try_init(|| started).await
    }

    async fn mariadb(&self) -> Result<&MariaDb> {
        let started = async {
            let server = MariaDb::start().await?;
            let url = server.create_database(database::MARIADB).await?;
            prepare(
                [
                    Contestant::Mysql,
                    Contestant::MysqlAdvisory,
                    Contestant::MysqlForUpdate,
                ],
                &url,
            )
            .await?;
            anyhow::Ok(server)
        };
        self.mariadb.get_or_try_init(|| started).await
    }
}

/// Makes the tables of these locks.
async fn prepare(contestants: impl IntoIterator<Item = Contestant>, url: &str) -> Result<()> {
    for contestant in contestants {
        client::prepare(&Opening::new(
            contestant,
            vec![url.into()],
            Fault::Restart.lease(),
        ))
        .await?;
    }
    Ok(())
}

async fn own(contestant: Contestant, home: Home, fault: Fault) -> Result<Box<dyn Site>> {
    Ok(match home {
        Home::FiveRedis => Box::new(redis::Nodes::start(5, fault).await?),
        Home::OneRedis => Box::new(redis::Nodes::start(1, fault).await?),
        Home::Postgres => Box::new(database::Own::postgres(contestant, fault).await?),
        Home::MariaDb => Box::new(database::Own::mariadb(contestant, fault).await?),
        Home::Sqlite => Box::new(database::File::start(contestant, fault).await?),
        Home::Etcd => Box::new(service::Own::etcd().await?),
        Home::ZooKeeper => Box::new(service::Own::zookeeper(fault).await?),
        Home::Consul => anyhow::bail!("there is no Consul"),
    })
}

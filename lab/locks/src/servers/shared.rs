//! Servers that several experiments share because they start slowly, and private servers where the
//! fault breaks them.

use anyhow::{Result, bail};
use async_trait::async_trait;
use testbed::{Etcd, MariaDb, Postgres, ZooKeeper};
use tokio::sync::OnceCell;

use super::{
    api::{Servers, create_tables},
    coordination, database, redis,
};
use crate::{
    backend::{Backend, ServerKind},
    fault::Fault,
};

/// The shared servers. Each starts when the first experiment needs it.
#[derive(Default)]
pub(crate) struct SharedServers {
    postgres: OnceCell<Postgres>,
    mariadb: OnceCell<MariaDb>,
    etcd: OnceCell<Etcd>,
    zookeeper: OnceCell<ZooKeeper>,
}

/// A shared server, as one experiment sees it.
struct Shared {
    port: u16,
    url: fn(u16) -> String,
}

#[async_trait]
impl Servers for Shared {
    fn ports(&self) -> Vec<u16> {
        vec![self.port]
    }

    fn url(&self, port: u16) -> String {
        (self.url)(port)
    }
}

impl SharedServers {
    /// Servers for an experiment. They are private if the fault breaks them.
    pub(crate) async fn servers(
        &self,
        backend: Backend,
        fault: Fault,
    ) -> Result<Box<dyn Servers + '_>> {
        if fault.leaves_servers_intact()
            && let Some(shared) = self.shared(backend.server_kind()).await?
        {
            return Ok(Box::new(shared));
        }
        private(backend, fault).await
    }

    /// `None` for servers that start fast enough to be private.
    async fn shared(&self, kind: ServerKind) -> Result<Option<Shared>> {
        let (port, url): (u16, fn(u16) -> String) = match kind {
            ServerKind::Postgres => (self.postgres().await?.port(), database::postgres_url),
            ServerKind::MariaDb => (self.mariadb().await?.port(), database::mariadb_url),
            ServerKind::Etcd => {
                let server = self.etcd.get_or_try_init(Etcd::start).await?;
                (server.port(), coordination::etcd_url)
            }
            ServerKind::ZooKeeper => {
                let server = self.zookeeper.get_or_try_init(ZooKeeper::start).await?;
                (server.port(), coordination::zookeeper_url)
            }
            ServerKind::FiveRedis
            | ServerKind::OneRedis
            | ServerKind::Sqlite
            | ServerKind::Consul => return Ok(None),
        };
        Ok(Some(Shared { port, url }))
    }

    async fn postgres(&self) -> Result<&Postgres> {
        use Backend::{Postgres as Row, PostgresAdvisory, PostgresForUpdate};
        let start = async {
            let server = Postgres::start().await?;
            let url = server.url(database::POSTGRES_DATABASE);
            create_tables([Row, PostgresAdvisory, PostgresForUpdate], &url).await?;
            anyhow::Ok(server)
        };
        self.postgres.get_or_try_init(|| start).await
    }

    async fn mariadb(&self) -> Result<&MariaDb> {
        use Backend::{Mysql, MysqlAdvisory, MysqlForUpdate};
        let start = async {
            let server = MariaDb::start().await?;
            let url = server.create_database(database::MARIADB_DATABASE).await?;
            create_tables([Mysql, MysqlAdvisory, MysqlForUpdate], &url).await?;
            anyhow::Ok(server)
        };
        self.mariadb.get_or_try_init(|| start).await
    }
}

/// Servers that only one experiment uses.
async fn private(backend: Backend, fault: Fault) -> Result<Box<dyn Servers>> {
    use coordination::CoordinationServer;
    use database::{DatabaseServer, SqliteFile};
    Ok(match backend.server_kind() {
        ServerKind::FiveRedis => Box::new(redis::RedisServers::start(5, fault).await?),
        ServerKind::OneRedis => Box::new(redis::RedisServers::start(1, fault).await?),
        ServerKind::Postgres => Box::new(DatabaseServer::postgres(backend, fault).await?),
        ServerKind::MariaDb => Box::new(DatabaseServer::mariadb(backend, fault).await?),
        ServerKind::Sqlite => Box::new(SqliteFile::create(backend, fault).await?),
        ServerKind::Etcd => Box::new(CoordinationServer::etcd().await?),
        ServerKind::ZooKeeper => Box::new(CoordinationServer::zookeeper(fault).await?),
        ServerKind::Consul => bail!("the comparison has no Consul server"),
    })
}

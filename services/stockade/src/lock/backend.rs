//! Opens a backend of the lock.
//!
//! A backend is a line in [`backends`](super::backends) and an arm in [`open`], with a cargo
//! feature of the same name.

use std::time::Duration;

use anyhow::{Result, bail};
#[cfg(feature = "consul")]
use lock::ConsulBuilder;
#[cfg(feature = "etcd")]
use lock::EtcdBuilder;
use lock::Lock;
#[cfg(feature = "redis")]
use lock::RedisLockBuilder;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
use lock::SqlLockBuilder;
#[cfg(feature = "zookeeper")]
use lock::ZooKeeperBuilder;

use super::options::Options;

/// A row of the table `locks`, which is created if it is missing. An unreachable database is
/// reported when the lock is acquired.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
macro_rules! in_a_table {
    ($options:ident, $database:ty) => {{
        let built = SqlLockBuilder::<$database>::connect($options.server()?).lease($options.lease).build();
        let lock = built.map_err(|error| $options.servers.wrong(&error))?;
        if let Err(error) = lock.create_table().await {
            tracing::debug!(%error, "cannot create the table `locks`");
        }
        Ok(Box::new(lock))
    }};
}

/// Opens the backend. Waits at most `wait_max` for servers that do not vote yet.
pub async fn open(options: &Options, wait_max: Option<Duration>) -> Result<Box<dyn Lock>> {
    match options.backend {
        #[cfg(feature = "redlock")]
        "redlock" => Ok(Box::new(super::redlock::open(options, wait_max).await?)),
        #[cfg(feature = "redis")]
        "redis" => {
            let builder = RedisLockBuilder::new(options.server()?).lease(options.lease);
            options.checked(match &options.servers.tls {
                Some(tls) => builder.tls(tls.clone()).build(),
                None => builder.build(),
            })
        }
        #[cfg(feature = "postgres")]
        "postgres" => in_a_table!(options, sqlx::Postgres),
        #[cfg(feature = "mysql")]
        "mysql" => in_a_table!(options, sqlx::MySql),
        #[cfg(feature = "sqlite")]
        "sqlite" => in_a_table!(options, sqlx::Sqlite),
        #[cfg(feature = "etcd")]
        "etcd" => options.checked(
            EtcdBuilder::new(options.servers.urls.clone())
                .lease(options.lease)
                .build()
                .await,
        ),
        #[cfg(feature = "zookeeper")]
        "zookeeper" => options.checked(
            ZooKeeperBuilder::new(options.hosts())
                .lease(options.lease)
                .build()
                .await,
        ),
        #[cfg(feature = "consul")]
        "consul" => options.checked(
            ConsulBuilder::new(options.server()?)
                .lease(options.lease)
                .build()
                .await,
        ),
        name => {
            bail!("--backend: {name} is not compiled in; build stockade with `--features {name}`")
        }
    }
}

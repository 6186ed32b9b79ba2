//! The servers that all tests of a binary share.
//!
//! They live exactly as long as the process: `testbed` kills them when it ends. Statics are not
//! dropped, so the kernel sends the signal.

use std::sync::atomic::{AtomicU32, Ordering};

use testbed::{AppendFsync, Postgres, Redis, RedisBuilder, RedisCluster};
use tokio::sync::OnceCell;

const CLUSTER_MASTERS: usize = 3;

/// The Redis server that tests share. They must neither break nor empty it.
pub async fn shared_redis() -> &'static Redis {
    static REDIS: OnceCell<Redis> = OnceCell::const_new();
    let start = || lazy_redis().start();
    REDIS.get_or_try_init(start).await.unwrap()
}

/// The Redis Cluster of three masters that tests share. They must neither break nor empty it.
pub async fn shared_cluster() -> &'static RedisCluster {
    static CLUSTER: OnceCell<RedisCluster> = OnceCell::const_new();
    CLUSTER
        .get_or_try_init(|| RedisCluster::start_from(lazy_redis(), CLUSTER_MASTERS, 0))
        .await
        .unwrap()
}

/// A server that is never killed may acknowledge what it has not flushed. Its tests would wait for
/// the disk at each write.
fn lazy_redis() -> RedisBuilder {
    Redis::builder().appendfsync(AppendFsync::EverySecond)
}

/// The PostgreSQL server that tests share. No test kills it.
pub(crate) async fn shared_postgres() -> &'static Postgres {
    static POSTGRES: OnceCell<Postgres> = OnceCell::const_new();
    POSTGRES.get_or_try_init(start_postgres).await.unwrap()
}

async fn start_postgres() -> testbed::Result<Postgres> {
    Postgres::builder()
        // The server would vacuum the databases one after the other, each once a minute. A program
        // leaves hundreds of them, and a worker would start several times a second.
        .config("autovacuum", "off")
        // A server that is never killed loses nothing that it has not flushed.
        .config("fsync", "off")
        .start()
        .await
}

/// A name that no database of the shared server has.
pub(crate) fn new_name() -> String {
    static DATABASES: AtomicU32 = AtomicU32::new(0);
    format!("test_{}", DATABASES.fetch_add(1, Ordering::Relaxed))
}

/// Creates an empty database on the PostgreSQL server that tests share. Returns its URL.
pub async fn postgres_database() -> String {
    let server = shared_postgres().await;
    server.create_database(&new_name()).await.unwrap()
}

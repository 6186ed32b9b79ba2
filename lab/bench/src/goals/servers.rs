//! Connections to the servers, and their processor time.

use std::time::Duration;

use anyhow::{Context, Result};
use redis::{
    AsyncConnectionConfig, Client, InfoDict, IntoConnectionInfo, aio::MultiplexedConnection,
    io::tcp::TcpSettings,
};
use testbed::{Postgres, PostgresBuilder, Redis};

/// Long enough that no call times out during a measurement.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// A client with TCP_NODELAY, as Stockade's own connections have it.
pub fn client(url: &str) -> Result<Client> {
    let info = url
        .into_connection_info()?
        .set_tcp_settings(TcpSettings::default().set_nodelay(true));
    Ok(Client::open(info)?)
}

/// A multiplexed connection.
pub async fn connect(url: &str) -> Result<MultiplexedConnection> {
    Ok(client(url)?
        .get_multiplexed_async_connection_with_config(&config())
        .await?)
}

/// Timeouts of a connection.
pub fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(RESPONSE_TIMEOUT))
        .set_response_timeout(Some(RESPONSE_TIMEOUT))
}

/// A PostgreSQL server with fsync on, and enough WAL to measure without a checkpoint. A checkpoint
/// would slow down one side of a comparison.
pub async fn postgres() -> Result<Postgres> {
    Ok(postgres_builder().start().await?)
}

fn postgres_builder() -> PostgresBuilder {
    Postgres::builder()
        .config("max_wal_size", "4GB")
        .config("checkpoint_timeout", "30min")
}

/// The same, set up for millions of orders as `docs/operations.md` tells a shop to: their indexes
/// stay in memory, and the log has images of pages compressed. Right after a checkpoint nearly every
/// order is the first one to change its pages.
pub async fn large_postgres() -> Result<Postgres> {
    let builder = postgres_builder()
        .config("shared_buffers", "1GB")
        .config("wal_compression", "on");
    Ok(builder.start().await?)
}

/// How PostgreSQL is set up, for the table.
pub const POSTGRES: &str = "PostgreSQL, fsync on, max_wal_size 4GB, checkpoint_timeout 30min";

/// How Redis is set up, for the table.
pub const REDIS: &str = "Redis, appendfsync always";

/// Microseconds of processor time that these servers have used since they were started, all
/// together.
pub async fn cpu_us(servers: &mut [MultiplexedConnection]) -> Result<f64> {
    let mut sum = 0.0;
    for server in servers {
        sum += used_us(&redis::cmd("INFO").arg("cpu").query_async(server).await?)?;
    }
    Ok(sum)
}

fn used_us(info: &InfoDict) -> Result<f64> {
    let seconds = |name: &str| {
        info.get::<f64>(name)
            .with_context(|| format!("INFO has no {name}"))
    };
    Ok((seconds("used_cpu_sys")? + seconds("used_cpu_user")?) * 1e6)
}

/// A connection to each.
pub async fn connect_all(
    servers: impl IntoIterator<Item = &Redis>,
) -> Result<Vec<MultiplexedConnection>> {
    let mut connections = Vec::new();
    for server in servers {
        connections.push(connect(&server.url()).await?);
    }
    Ok(connections)
}

#[cfg(test)]
mod tests {
    use redis::InfoDict;

    use super::used_us;

    #[test]
    fn processor_time_is_what_the_system_and_the_server_itself_used() {
        let info = InfoDict::new(
            "# CPU\r\nused_cpu_sys:1.500000\r\nused_cpu_user:0.250000\r\nused_cpu_sys_children:9.0\r\n",
        );
        assert!((used_us(&info).unwrap() - 1_750_000.0).abs() < 1e-3);
        assert!(used_us(&InfoDict::new("# CPU\r\nused_cpu_sys:1.5\r\n")).is_err());
    }
}

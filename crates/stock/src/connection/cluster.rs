//! Every master of a cluster.

use std::{sync::Arc, time::Duration};

use redis::{Client, ConnectionInfo, cluster::ClusterClient};

use super::{Bulk, Connection, Connections, Nodes, RedisSettings, Replicated, info, replicated, tcp};
use crate::{StockError, stock::StockSettings};

pub(super) async fn open(settings: &StockSettings, urls: &[String]) -> Result<Connections, StockError> {
    let infos = urls.iter().map(|url| info(url)).collect::<Result<Vec<_>, _>>()?;
    let nodes = infos.iter().cloned().map(Client::open).collect::<Result<Vec<_>, _>>()?;
    let confirming = client(&settings.redis, infos.clone(), replicated::response_timeout(settings))?;
    let confirming = Arc::new(replicated::ClusterConnections::new(confirming));
    let client = client(&settings.redis, infos, settings.redis.response_timeout)?;
    Ok(Connections {
        orders: Connection::Cluster(client.get_async_connection().await?),
        bulk: Bulk::Cluster(client.get_async_connection().await?),
        replicated: Replicated::new(settings, replicated::Connections::Cluster(confirming)),
        nodes: Nodes::Fixed(nodes),
    })
}

fn client(settings: &RedisSettings, infos: Vec<ConnectionInfo>, response_timeout: Duration) -> Result<ClusterClient, StockError> {
    let client = ClusterClient::builder(infos)
        .connection_timeout(settings.connect_timeout)
        .response_timeout(response_timeout)
        .overall_response_timeout(Some(response_timeout * 2))
        .tcp_settings(tcp())
        .retries(1);
    Ok(client.build()?)
}

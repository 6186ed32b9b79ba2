//! Every master of a cluster.

use redis::{Client, cluster::ClusterClient};

use super::{Bulk, Connection, Connections, Nodes, RedisSettings, info, tcp};
use crate::StockError;

pub(super) async fn open(settings: &RedisSettings, urls: &[String]) -> Result<Connections, StockError> {
    let infos = urls.iter().map(|url| info(url)).collect::<Result<Vec<_>, _>>()?;
    let nodes = infos.iter().cloned().map(Client::open).collect::<Result<Vec<_>, _>>()?;
    let client = ClusterClient::builder(infos)
        .connection_timeout(settings.connect_timeout)
        .response_timeout(settings.response_timeout)
        .overall_response_timeout(Some(settings.response_timeout * 2))
        .tcp_settings(tcp())
        .retries(1)
        .build()?;
    let orders = client.get_async_connection().await?;
    let bulk = client.get_async_connection().await?;
    Ok(Connections { orders: Connection::Cluster(orders), bulk: Bulk::Cluster(bulk), nodes: Nodes::Fixed(nodes) })
}

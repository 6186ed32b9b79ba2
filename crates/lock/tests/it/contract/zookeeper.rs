//! One ZooKeeper server with ticks of 100 ms.

use std::{sync::Arc, time::Duration};

use lock::{Lock, ZooKeeperBuilder};
use testbed::ZooKeeper;
use tokio::sync::OnceCell;
use zookeeper_client::Client;

use super::{TestEnv, answer_timeout};
use crate::support::{HOUR, ms};

static SHARED: OnceCell<ZooKeeperEnv> = OnceCell::const_new();

pub struct ZooKeeperEnv(ZooKeeper);

impl ZooKeeperEnv {
    pub fn server(&self) -> &ZooKeeper {
        &self.0
    }

    pub fn url(&self) -> String {
        self.0.url()
    }

    fn builder(&self, lease: Duration) -> ZooKeeperBuilder {
        ZooKeeperBuilder::new(self.url())
            .lease(lease)
            .tick_time(ms(100))
            .timeout(answer_timeout(lease))
    }

    pub async fn raw(&self) -> Client {
        Client::connect(&self.url()).await.unwrap()
    }

    /// The nodes of a lock, in the order of their numbers. Only spaces in the name are encoded.
    pub async fn nodes(&self, client: &Client, name: &str) -> Vec<String> {
        let parent = parent(name);
        let mut nodes = client.list_children(&parent).await.unwrap_or_default();
        nodes.sort_by_key(|node| node.rsplit('-').next().unwrap().parse::<i64>().unwrap());
        nodes
            .into_iter()
            .map(|node| format!("{parent}/{node}"))
            .collect()
    }
}

/// As an operator would type it.
fn parent(name: &str) -> String {
    format!("/locks/{}", name.replace(' ', "_20"))
}

impl TestEnv for ZooKeeperEnv {
    const LEASE: Duration = ms(2000);

    async fn shared() -> &'static Self {
        SHARED.get_or_init(Self::own).await
    }

    async fn own() -> Self {
        Self(
            ZooKeeper::builder()
                .config("4lw.commands.whitelist", "conf,ruok,srvr,wchp")
                .config("maxSessionTimeout", &HOUR.as_millis().to_string())
                .start()
                .await
                .unwrap(),
        )
    }

    async fn client_with_lease(&self, lease: Duration) -> Arc<dyn Lock> {
        Arc::new(self.builder(lease).build().await.unwrap())
    }

    async fn seldom_client(&self) -> Arc<dyn Lock> {
        Arc::new(self.builder(Self::LEASE).retry(HOUR).build().await.unwrap())
    }

    async fn queued(&self, name: &str) -> usize {
        // All but the holder.
        self.nodes(&self.raw().await, name).await.len() - 1
    }

    async fn make_unavailable(&mut self) {
        self.0.kill().await.unwrap();
    }

    async fn make_available(&mut self) {
        self.0.restart().await.unwrap();
    }

    async fn revoke(&self, name: &str) {
        let client = self.raw().await;
        for node in self.nodes(&client, name).await {
            // The node may have been removed in between.
            let _ = client.delete(&node, None).await;
        }
    }
}

//! The lock of ZooKeeper's recipes.

use std::time::Duration;

use anyhow::{Context, Result};
use async_trait::async_trait;
use zookeeper_client::{Acls, Client, CreateMode, Error};

use super::coordination::Coordination;

/// The lock of ZooKeeper's recipes. Its client keeps the session alive.
pub(super) struct ZooKeeperRecipe {
    client: Client,
    parent: String,
    node: Option<String>,
}

impl ZooKeeperRecipe {
    pub(super) async fn connect(servers: &str, parent: &str, session: Duration) -> Result<Self> {
        let client = Client::connector()
            .with_session_timeout(session)
            .connect(servers)
            .await?;
        client
            .mkdir(
                parent,
                &CreateMode::Persistent.with_acls(Acls::anyone_all()),
            )
            .await?;
        Ok(Self {
            client,
            parent: parent.into(),
            node: None,
        })
    }

    /// Returns the node in front of ours, if there is one.
    async fn predecessor(&self, ours: &str) -> Result<Option<String>> {
        let mut queue = self.client.list_children(&self.parent).await?;
        // All names are equal except for the number, which has leading zeros.
        queue.sort_unstable();
        let place = queue
            .iter()
            .position(|node| *node == ours)
            .context("our node in the queue is gone")?;
        Ok(place
            .checked_sub(1)
            .map(|before| format!("{}/{}", self.parent, queue[before])))
    }

    fn path(&self) -> Result<String> {
        Ok(format!(
            "{}/{}",
            self.parent,
            self.node.as_deref().context("the lock has no node")?
        ))
    }
}

#[async_trait]
impl Coordination for ZooKeeperRecipe {
    async fn lock(&mut self) -> Result<i64> {
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let (stat, number) = self
            .client
            .create(&format!("{}/lock-", self.parent), &[], &options)
            .await?;
        let node = format!("lock-{number}");
        self.node = Some(node.clone());
        while let Some(before) = self.predecessor(&node).await? {
            let (there, watch) = self.client.check_and_watch_stat(&before).await?;
            if there.is_some() {
                watch.changed().await;
            }
        }
        Ok(stat.czxid)
    }

    async fn is_ours(&mut self) -> Result<bool> {
        match self.client.check_stat(&self.path()?).await {
            Ok(stat) => Ok(stat.is_some()),
            Err(Error::SessionExpired) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn unlock(&mut self) -> Result<()> {
        // If the session has ended, the node is gone as well.
        let _ = self.client.delete(&self.path()?, None).await;
        Ok(())
    }
}

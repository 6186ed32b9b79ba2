//! The Redis servers that `up` starts for itself, in its data folder.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use testbed::{AppendFsync, Redis};

/// As many as a quorum of three needs.
const LOCK_NODES: usize = 5;

/// The private servers, each a child of this process.
#[derive(Default)]
pub struct Private {
    servers: Vec<Redis>,
}

impl Private {
    /// Starts the server for the stock.
    pub async fn start_stock(&mut self, dir: &Path) -> Result<String> {
        self.start(dir.join("redis").join("stock")).await
    }

    /// Starts the lock nodes.
    pub async fn start_lock_nodes(&mut self, dir: &Path) -> Result<Vec<String>> {
        let mut urls = Vec::new();
        for node in 1..=LOCK_NODES {
            urls.push(
                self.start(dir.join("redis").join(format!("lock-{node}")))
                    .await?,
            );
        }
        Ok(urls)
    }

    /// With batches, `appendfsync always` costs little: an order that was only accepted survives a crash too.
    async fn start(&mut self, dir: PathBuf) -> Result<String> {
        let server = Redis::builder()
            .dir(&dir)
            .appendfsync(AppendFsync::Always)
            .start()
            .await;
        let server = server.with_context(|| {
            format!("a private Redis server in {} did not start", dir.display())
        })?;
        let url = server.url();
        self.servers.push(server);
        Ok(url)
    }

    /// Stops them in the order opposite to their start, each after it has written what it has.
    pub async fn stop(self) {
        for server in self.servers.into_iter().rev() {
            if let Err(error) = server.stop().await {
                tracing::warn!(%error, "a private Redis server did not stop as it should");
            }
        }
    }
}

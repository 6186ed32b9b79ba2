//! The private Redis servers that `up` starts in its data folder.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use local::{AppendFsync, Redis};

/// Number of lock nodes. A quorum of three tolerates the loss of two.
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

    /// Starts the lock nodes. Each keeps its votes in its folder, so it votes without waiting for
    /// leases when it is new or restarts.
    pub async fn start_lock_nodes(&mut self, dir: &Path) -> Result<Vec<String>> {
        let mut urls = Vec::new();
        for node in 1..=LOCK_NODES {
            let dir = dir.join("redis").join(format!("lock-{node}"));
            urls.push(format!("{}?durable=true", self.start(dir).await?));
        }
        Ok(urls)
    }

    /// Starts a server with `appendfsync always`, so that an accepted order survives a crash even
    /// before it is recorded. Batches keep the cost of that small.
    async fn start(&mut self, dir: PathBuf) -> Result<String> {
        let server = Redis::builder(&dir)
            .appendfsync(AppendFsync::Always)
            .start()
            .await
            .with_context(|| {
                format!(
                    "could not start a private Redis server in {}",
                    dir.display()
                )
            })?;
        let url = server.url();
        self.servers.push(server);
        Ok(url)
    }

    /// Stops the servers in reverse order of their start. Each writes its data before it ends.
    pub async fn stop(self) {
        for server in self.servers.into_iter().rev() {
            server.stop().await;
        }
    }
}

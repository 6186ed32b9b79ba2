//! Replicas: whether they follow, how one falls behind, and how one becomes a master.
//!
//! What a reader could get wrong: to kill a master is not to lose its last writes. They are in the replica's socket, and the replica
//! carries them out before it notices. A write is lost for certain only if the replica was told to leave it there ([`Redis::lag`]), the
//! master was killed, and the replica noticed that ([`Redis::notices_its_masters_end`]) before it was let go ([`Redis::catch_up`]).

use std::time::{Duration, Instant};

use redis::{InfoDict, aio::MultiplexedConnection, cmd};
use tokio::time::sleep;

use crate::{Redis, Result, TestbedError};

const WITHIN: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);
/// How long one WAIT for the replicas takes at most; shorter than the time in which any command must be answered.
const WAIT_MS: u32 = 500;
/// Longer than any test.
const LAG_MS: u32 = 3_600_000;

impl Redis {
    /// Waits until `replicas` of its replicas really follow. The link of a replica is up before its first acknowledgement, and until
    /// then its master sends it nothing: only a write that it confirms proves anything.
    pub async fn is_followed_by(&self, replicas: usize) -> Result<()> {
        let deadline = Instant::now() + WITHIN;
        loop {
            let confirmed = self.confirm(replicas).await;
            match confirmed {
                Ok(confirmed) if confirmed >= replicas => return Ok(()),
                Ok(confirmed) if Instant::now() > deadline => {
                    return Err(TestbedError::ReplicasBehind {
                        port: self.port(),
                        wanted: replicas,
                        confirmed,
                        waited: WITHIN,
                    });
                }
                Err(error) if Instant::now() > deadline => return Err(error),
                _ => sleep(POLL).await,
            }
        }
    }

    async fn confirm(&self, replicas: usize) -> Result<usize> {
        let mut connection = self.connect().await?;
        confirmed_write(&mut connection, "testbed", replicas)
            .await
            .map_err(|source| self.refused(source))
    }

    /// A replica carries nothing out any more that its master sends, and acknowledges nothing of it; its link stays up, and it answers
    /// whoever asks, so Sentinel and Cluster take it for healthy.
    pub async fn lag(&self) -> Result<()> {
        self.tell(cmd("CLIENT").arg("PAUSE").arg(LAG_MS).arg("WRITE"))
            .await
    }

    /// Ends the lag: what the master has sent meanwhile is carried out now, unless the master has gone.
    pub async fn catch_up(&self) -> Result<()> {
        self.tell(cmd("CLIENT").arg("UNPAUSE")).await
    }

    /// Waits until this replica has noticed that its master is gone. What it has not carried out by then it never will.
    pub async fn notices_its_masters_end(&self) -> Result<()> {
        self.until_replication("its master still there", |info| {
            info.get::<String>("master_link_status").as_deref() != Some("up")
        })
        .await
    }

    /// Makes a replica a master, for good: also after a restart.
    pub async fn promote(&self) -> Result<()> {
        self.tell(cmd("REPLICAOF").arg("NO").arg("ONE")).await?;
        self.tell(cmd("CONFIG").arg("REWRITE")).await
    }

    /// Makes it a replica of another server, for good: also after a restart. What only it has is lost.
    pub async fn follow(&self, master: &Self) -> Result<()> {
        self.tell(cmd("REPLICAOF").arg("127.0.0.1").arg(master.port()))
            .await?;
        self.tell(cmd("CONFIG").arg("REWRITE")).await?;
        self.until_replication("no link to its master", |info| {
            info.get::<String>("master_link_status").as_deref() == Some("up")
        })
        .await
    }

    /// Whether it says that it is a master.
    pub async fn is_master(&self) -> Result<bool> {
        let info = self.replication().await?;
        Ok(info.get::<String>("role").as_deref() == Some("master"))
    }

    /// A failed question is asked again: Sentinel closes every connection to a server whose role it changes.
    pub(crate) async fn until_replication(
        &self,
        otherwise: &str,
        reached: impl Fn(&InfoDict) -> bool,
    ) -> Result<()> {
        let deadline = Instant::now() + WITHIN;
        loop {
            // A server that sentinels make a replica drops its clients: that is no answer yet.
            let view = match self.replication().await {
                Ok(info) if reached(&info) => return Ok(()),
                Ok(_) => format!("the server on port {} says: {otherwise}", self.port()),
                Err(error) => format!("the server on port {} does not say: {error}", self.port()),
            };
            if Instant::now() > deadline {
                return Err(TestbedError::NoFailover {
                    waited: WITHIN,
                    view,
                });
            }
        }
    }

    async fn replication(&self) -> Result<InfoDict> {
        cmd("INFO")
            .arg("replication")
            .query_async(&mut self.connect().await?)
            .await
            .map_err(|source| self.refused(source))
    }

    async fn tell(&self, command: &redis::Cmd) -> Result<()> {
        command
            .exec_async(&mut self.connect().await?)
            .await
            .map_err(|source| self.refused(source))
    }
}

/// How many replicas have confirmed a write of this key to this master. WAIT counts the writes of its own connection, hence one pipeline.
pub(crate) async fn confirmed_write(
    connection: &mut MultiplexedConnection,
    key: &str,
    replicas: usize,
) -> redis::RedisResult<usize> {
    let mut write = redis::pipe();
    write
        .cmd("SET")
        .arg(key)
        .arg("")
        .ignore()
        .cmd("DEL")
        .arg(key)
        .ignore();
    write.cmd("WAIT").arg(replicas).arg(WAIT_MS);
    let (confirmed,) = write.query_async(connection).await?;
    Ok(confirmed)
}

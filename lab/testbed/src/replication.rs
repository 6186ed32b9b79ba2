//! Replication: replicas that follow, fall behind, and become masters.
//!
//! Killing a master does not lose its last writes. They are in the replica's socket, and the
//! replica carries them out before it notices the loss of its master. A write is certainly lost
//! only after four steps: the replica stops reading it ([`Redis::lag`]), the master is killed, the
//! replica notices that ([`Redis::notices_its_masters_end`]), and only then it continues
//! ([`Redis::catch_up`]).

use std::time::{Duration, Instant};

use redis::{InfoDict, aio::MultiplexedConnection, cmd};
use tokio::time::sleep;

use crate::{Redis, Result, TestbedError, timeout};

const POLL: Duration = Duration::from_millis(5);
/// Timeout of one WAIT for the replicas; shorter than the response timeout of the connection.
const WAIT_TIMEOUT_MS: u32 = 500;
/// Longer than any test.
const LAG_MS: u32 = 3_600_000;

impl Redis {
    /// Waits until this many replicas follow. The link of a replica is up before its first
    /// acknowledgement, and until then its master sends it nothing. Only a confirmed write proves
    /// that it follows.
    pub async fn is_followed_by(&self, replicas: usize) -> Result<()> {
        let waited = timeout();
        let deadline = Instant::now() + waited;
        loop {
            let confirmed = self.confirm(replicas).await;
            match confirmed {
                Ok(confirmed) if confirmed >= replicas => return Ok(()),
                Ok(confirmed) if Instant::now() > deadline => {
                    return Err(TestbedError::ReplicasBehind {
                        port: self.port(),
                        wanted: replicas,
                        confirmed,
                        waited,
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

    /// Makes a replica neither carry out nor acknowledge the writes of its master. Its link stays
    /// up and it answers clients, so Sentinel and Cluster consider it healthy.
    pub async fn lag(&self) -> Result<()> {
        self.execute(cmd("CLIENT").arg("PAUSE").arg(LAG_MS).arg("WRITE"))
            .await
    }

    /// Ends the lag. The replica carries out the writes that its master has sent meanwhile, unless
    /// the master is gone.
    pub async fn catch_up(&self) -> Result<()> {
        self.execute(cmd("CLIENT").arg("UNPAUSE")).await
    }

    /// Waits until this replica has noticed that its master is gone. From then on it never carries
    /// out the writes that it has not carried out before.
    pub async fn notices_its_masters_end(&self) -> Result<()> {
        self.until_replication("its link to the master is still up", |info| {
            info.get::<String>("master_link_status").as_deref() != Some("up")
        })
        .await
    }

    /// Makes a replica a master, also after a restart.
    pub async fn promote(&self) -> Result<()> {
        self.execute(cmd("REPLICAOF").arg("NO").arg("ONE")).await?;
        self.execute(cmd("CONFIG").arg("REWRITE")).await
    }

    /// Makes it a replica of another server, also after a restart. Writes that only this server has
    /// are lost.
    pub async fn follow(&self, master: &Self) -> Result<()> {
        self.execute(cmd("REPLICAOF").arg("127.0.0.1").arg(master.port()))
            .await?;
        self.execute(cmd("CONFIG").arg("REWRITE")).await?;
        self.has_a_master().await
    }

    /// Waits until its link to a master is up.
    pub(crate) async fn has_a_master(&self) -> Result<()> {
        self.until_replication("no link to its master", |info| {
            info.get::<String>("master_link_status").as_deref() == Some("up")
        })
        .await
    }

    /// Hands the role of the master over to a replica that follows, as a planned failover does, and
    /// returns when this server follows it. No acknowledged write is lost: clients' writes wait
    /// until the roles are exchanged, and then this server refuses them with READONLY. Connections
    /// stay.
    pub async fn hand_over_to(&self, replica: &Self) -> Result<()> {
        replica.has_a_master().await?;
        self.execute(cmd("CLIENT").arg("PAUSE").arg(LAG_MS).arg("WRITE"))
            .await?;
        let exchanged = self.exchange_roles(replica).await;
        // Also after an error: the writes of clients must not wait for an hour.
        self.execute(cmd("CLIENT").arg("UNPAUSE")).await?;
        exchanged?;
        self.follow(replica).await
    }

    /// The master takes no writes meanwhile, so the replica has all of them at the end.
    async fn exchange_roles(&self, replica: &Self) -> Result<()> {
        self.is_caught_up_by(replica).await?;
        replica.promote().await?;
        self.execute(cmd("REPLICAOF").arg("127.0.0.1").arg(replica.port()))
            .await
    }

    /// Waits until the replica has everything that this master has now.
    pub(crate) async fn is_caught_up_by(&self, replica: &Self) -> Result<()> {
        let offset = |info: &InfoDict| info.get::<u64>("master_repl_offset");
        let written = offset(&self.replication_once().await?);
        replica
            .until_replication("it does not have all writes of its master", |info| {
                offset(info) >= written
            })
            .await
    }

    /// Whether it reports the role of a master.
    pub async fn is_master(&self) -> Result<bool> {
        Ok(is_of_master(&self.replication_once().await?))
    }

    /// The same for a poll: a server that is paused is none after a second.
    pub(crate) async fn answers_as_master(&self) -> bool {
        self.replication()
            .await
            .is_ok_and(|info| is_of_master(&info))
    }

    /// Polls until the replication state satisfies `reached`. A failed command is repeated, because
    /// Sentinel closes every connection to a server whose role it changes.
    pub(crate) async fn until_replication(
        &self,
        otherwise: &str,
        reached: impl Fn(&InfoDict) -> bool,
    ) -> Result<()> {
        let waited = timeout();
        let deadline = Instant::now() + waited;
        loop {
            let view = match self.replication().await {
                Ok(info) if reached(&info) => return Ok(()),
                Ok(_) => format!("the server on port {} reports: {otherwise}", self.port()),
                Err(error) => format!(
                    "the server on port {} does not report its state: {error}",
                    self.port()
                ),
            };
            if Instant::now() > deadline {
                return Err(TestbedError::NoFailover { waited, view });
            }
            sleep(POLL).await;
        }
    }

    /// For a poll, which is repeated: it fails after a second.
    async fn replication(&self) -> Result<InfoDict> {
        self.replication_over(self.connect().await?).await
    }

    /// For a question that is asked once.
    async fn replication_once(&self) -> Result<InfoDict> {
        self.replication_over(self.connect_for_long().await?).await
    }

    async fn replication_over(&self, mut connection: MultiplexedConnection) -> Result<InfoDict> {
        cmd("INFO")
            .arg("replication")
            .query_async(&mut connection)
            .await
            .map_err(|source| self.refused(source))
    }
}

fn is_of_master(info: &InfoDict) -> bool {
    info.get::<String>("role").as_deref() == Some("master")
}

/// Writes this key to a master and returns the number of replicas that confirm it. WAIT counts the
/// writes of its own connection, hence one pipeline.
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
    write.cmd("WAIT").arg(replicas).arg(WAIT_TIMEOUT_MS);
    let (confirmed,) = write.query_async(connection).await?;
    Ok(confirmed)
}

//! A Redis server, its replicas, and three sentinels that watch them.
//!
//! Sentinels that have just started know neither the replicas nor each other, and need seconds to
//! discover them. Here the configuration file of each sentinel lists them all, and
//! [`RedisSentinel::start`] returns when all sentinels agree, after some two tenths of a second. A
//! failover still takes one or two seconds, and eight if the first election fails.

mod node;

use std::time::{Duration, Instant};

use local::{LocalError, free_port};
pub use node::Sentinel;
use redis::{InfoDict, RedisResult, cmd};
use tokio::time::sleep;

use crate::{Redis, Result, TestbedError, timeout};

/// Name of the master in the sentinels' configuration.
const MASTER_NAME: &str = "stock";
const SENTINELS: usize = 3;
const QUORUM: usize = 2;
/// Attempts to start a group of sentinels. A group is started again on other ports when another
/// process took one of its ports first.
const START_ATTEMPTS_MAX: usize = 5;
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// One master, its replicas and three sentinels. Dropping it kills all of them.
#[derive(Debug)]
pub struct RedisSentinel {
    servers: Vec<Redis>,
    sentinels: Vec<Sentinel>,
}

impl RedisSentinel {
    /// Starts a master, this many replicas and three sentinels. Returns when all replicas follow and
    /// all sentinels agree. The first master is server 0.
    ///
    /// A server counts as failed after one second of silence.
    pub async fn start(replicas: usize) -> Result<Self> {
        let mut servers = vec![Redis::start().await?];
        for _ in 0..replicas {
            servers.push(Redis::builder().replica_of(&servers[0]).start().await?);
        }
        servers[0].is_followed_by(replicas).await?;
        let sentinels = start_sentinels(&servers).await?;
        let group = Self { servers, sentinels };
        let wait = Wait::new();
        while !group.all_agree().await {
            wait.poll("all sentinels to know the servers and each other")
                .await?;
        }
        Ok(group)
    }

    /// `redis+sentinel://127.0.0.1:P1,127.0.0.1:P2,127.0.0.1:P3/NAME`
    pub fn url(&self) -> String {
        let addresses: Vec<_> = self
            .sentinels
            .iter()
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.port()))
            .collect();
        format!("redis+sentinel://{}/{MASTER_NAME}", addresses.join(","))
    }

    /// The servers; the first master comes first.
    pub fn servers(&self) -> &[Redis] {
        &self.servers
    }

    /// The servers, for kills and restarts.
    pub fn servers_mut(&mut self) -> &mut [Redis] {
        &mut self.servers
    }

    /// The sentinels.
    pub fn sentinels(&self) -> &[Sentinel] {
        &self.sentinels
    }

    /// The sentinels, for kills and restarts.
    pub fn sentinels_mut(&mut self) -> &mut [Sentinel] {
        &mut self.sentinels
    }

    /// Index of the master that a majority of the sentinels names, once the server agrees.
    pub async fn master(&self) -> Result<usize> {
        let wait = Wait::new();
        loop {
            match self.named().await {
                Some(master) => return Ok(master),
                None => wait.poll("a master that most sentinels name").await?,
            }
        }
    }

    /// Waits until a server other than `old` is the master, and returns its index.
    pub async fn successor_of(&self, old: usize) -> Result<usize> {
        let wait = Wait::new();
        loop {
            match self.named().await {
                Some(master) if master != old => return Ok(master),
                _ => wait.poll("another master").await?,
            }
        }
    }

    /// Sends SIGKILL to the master, waits until its replicas have noticed, and returns its index. A
    /// replica that [lags](Redis::lag) never carries out the writes that it has not carried out
    /// before.
    pub async fn kill_master(&mut self) -> Result<usize> {
        let master = self.master().await?;
        self.servers[master].kill().await?;
        for (index, server) in self.servers.iter().enumerate() {
            if index != master && server.connect().await.is_ok() {
                server.notices_its_masters_end().await?;
            }
        }
        Ok(master)
    }

    /// Makes the sentinels elect another master without a failure, and returns its index.
    pub async fn fail_over(&self) -> Result<usize> {
        let old = self.master().await?;
        let sentinel = &self.sentinels[0];
        let requested: RedisResult<()> = sentinel
            .query(cmd("SENTINEL").arg("FAILOVER").arg(MASTER_NAME))
            .await;
        requested.map_err(|source| TestbedError::Redis {
            port: sentinel.port(),
            source,
        })?;
        self.successor_of(old).await
    }

    /// Restarts a server that was a master. It starts as a master again until the sentinels
    /// reconfigure it; returns when it follows the present master.
    pub async fn restart_as_replica(&mut self, server: usize) -> Result<()> {
        self.servers[server].restart().await?;
        self.becomes_replica(server).await
    }

    /// Waits until this server follows a master.
    pub async fn becomes_replica(&self, server: usize) -> Result<()> {
        let follows =
            |info: &InfoDict| info.get::<String>("master_link_status").as_deref() == Some("up");
        self.servers[server]
            .until_replication("it follows no master", follows)
            .await
    }

    async fn named(&self) -> Option<usize> {
        let mut votes = vec![0; self.servers.len()];
        for sentinel in &self.sentinels {
            let port = sentinel.named_port().await;
            for (index, _) in self
                .servers
                .iter()
                .enumerate()
                .filter(|(_, server)| Some(server.port()) == port)
            {
                votes[index] += 1;
            }
        }
        let named = votes.iter().position(|votes| *votes >= QUORUM)?;
        self.servers[named]
            .is_master()
            .await
            .ok()
            .filter(|is_master| *is_master)
            .map(|_| named)
    }

    async fn all_agree(&self) -> bool {
        for sentinel in &self.sentinels {
            if !sentinel.knows(self.servers.len() - 1, SENTINELS - 1).await {
                return false;
            }
        }
        true
    }
}

/// Polls with a deadline. The callers loop themselves: the compiler cannot prove that the future of
/// a function that takes an async closure is `Send`.
struct Wait {
    deadline: Instant,
}

impl Wait {
    fn new() -> Self {
        Self {
            deadline: Instant::now() + timeout(),
        }
    }

    /// Sleeps for one interval, or fails after the deadline.
    async fn poll(&self, what: &str) -> Result<()> {
        if Instant::now() > self.deadline {
            return Err(TestbedError::NoFailover {
                waited: timeout(),
                view: format!("waited for {what}"),
            });
        }
        sleep(POLL_INTERVAL).await;
        Ok(())
    }
}

async fn start_sentinels(servers: &[Redis]) -> Result<Vec<Sentinel>> {
    for _ in 1..START_ATTEMPTS_MAX {
        match try_sentinels(servers).await {
            Err(TestbedError::Local(LocalError::PortTaken { .. })) => {}
            outcome => return outcome,
        }
    }
    try_sentinels(servers).await
}

/// Chooses all ports first, because the configuration of each sentinel lists the others.
async fn try_sentinels(servers: &[Redis]) -> Result<Vec<Sentinel>> {
    let mut ports = Vec::new();
    for _ in 0..SENTINELS {
        ports.push(free_port().await);
    }
    let mut sentinels = Vec::new();
    for port in &ports {
        sentinels.push(Sentinel::start(*port, &ports, servers).await?);
    }
    Ok(sentinels)
}

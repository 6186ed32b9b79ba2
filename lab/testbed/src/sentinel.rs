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
use redis::{RedisResult, cmd};
use tokio::time::sleep;

use crate::{Redis, RedisBuilder, Result, TestbedError, timeout};

/// Name of the master in the sentinels' configuration.
const MASTER_NAME: &str = "stock";
const SENTINELS: usize = 3;
const QUORUM: usize = 2;
/// Attempts to start a group of sentinels. A group is started again on other ports when another
/// process took one of its ports first.
const START_ATTEMPTS_MAX: usize = 5;
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// More replicas than any group has: a master that requires so many refuses every write.
const REPLICAS_NEVER_REACHED: u32 = 1000;

/// One master, its replicas and three sentinels. Dropping it kills all of them.
#[derive(Debug)]
pub struct RedisSentinel {
    servers: Vec<Redis>,
    sentinels: Vec<Sentinel>,
}

impl RedisSentinel {
    /// Starts a master, this many replicas and three sentinels. Returns when all replicas follow
    /// and all sentinels agree. The first master is server 0.
    ///
    /// A server counts as failed after one second of silence.
    pub async fn start(replicas: usize) -> Result<Self> {
        Self::start_from(&Redis::builder(), replicas).await
    }

    /// The same with servers that are configured like this.
    pub async fn start_from(server: &RedisBuilder, replicas: usize) -> Result<Self> {
        let mut servers = vec![server.clone().start().await?];
        for _ in 0..replicas {
            servers.push(server.clone().replica_of(&servers[0]).start().await?);
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
        for (index, server) in self.servers.iter_mut().enumerate() {
            // Servers that were stopped earlier need not notice.
            if index != master && server.is_running() {
                server.notices_its_masters_end().await?;
            }
        }
        Ok(master)
    }

    /// Makes the sentinels elect another master without a failure, and returns its index.
    pub async fn fail_over(&self) -> Result<usize> {
        let old = self.master().await?;
        let wait = Wait::new();
        while let Err(refusal) = self.request_failover().await? {
            let what = format!("the sentinels to begin a failover; they answered: {refusal}");
            wait.poll(&what).await?;
        }
        self.successor_of(old).await
    }

    /// The inner error is the sentinel's refusal, after which nothing has begun: no replica is good
    /// enough yet, or an earlier failover goes on. A request without an answer may have begun one.
    async fn request_failover(&self) -> Result<RedisResult<()>> {
        let sentinel = &self.sentinels[0];
        let requested: RedisResult<()> = sentinel
            .query(cmd("SENTINEL").arg("FAILOVER").arg(MASTER_NAME))
            .await;
        match requested {
            Err(source) if source.is_io_error() || source.is_timeout() => {
                Err(TestbedError::Redis {
                    port: sentinel.port(),
                    source,
                })
            }
            answered => Ok(answered),
        }
    }

    /// A planned failover from a master that stays up and loses no acknowledged write. Returns the
    /// indices of the old and of the new master.
    ///
    /// The old master refuses writes with NOREPLICAS until its successor is the master, and with
    /// READONLY from then on. A pause of its clients would not do: it delays the sentinels'
    /// messages too, and they would elect a second time. Connections to the old master stay, unless
    /// the sentinels demote it first, who cut them.
    pub async fn hand_over(&self) -> Result<(usize, usize)> {
        let old = self.master().await?;
        let server = &self.servers[old];
        server.require_replicas(REPLICAS_NEVER_REACHED).await?;
        let handed_over = self.promote_without_loss(old).await;
        // Also after an error, and on the disk: a later restart must not bring the refusal back.
        server.require_replicas(0).await?;
        server.execute(cmd("CONFIG").arg("REWRITE")).await?;
        Ok((old, handed_over?))
    }

    async fn promote_without_loss(&self, old: usize) -> Result<usize> {
        let others = (0..self.servers.len()).filter(|server| *server != old);
        for replica in others {
            self.servers[old]
                .is_caught_up_by(&self.servers[replica])
                .await?;
        }
        let new = self.fail_over().await?;
        self.servers[old].follow(&self.servers[new]).await?;
        Ok(new)
    }

    /// Restarts a server that was a master. It starts as a master again until the sentinels
    /// reconfigure it; returns when it follows the present master.
    pub async fn restart_as_replica(&mut self, server: usize) -> Result<()> {
        self.servers[server].restart().await?;
        self.becomes_replica(server).await
    }

    /// Waits until this server follows a master.
    pub async fn becomes_replica(&self, server: usize) -> Result<()> {
        self.servers[server].has_a_master().await
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
        let is_master = self.servers[named].answers_as_master().await;
        is_master.then_some(named)
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

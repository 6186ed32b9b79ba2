//! A Redis server, its replicas, and three sentinels that watch them.
//!
//! What a reader could get wrong: sentinels that have just started know neither the replicas nor each other, and would take seconds to
//! find out. Here each is told at the start, in its configuration file, and [`RedisSentinel::start`] returns when all agree, after some
//! two tenths of a second. A failover still takes its time, one or two seconds, and eight when the first election fails.

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use redis::{InfoDict, RedisResult, Value, cmd};
use tokio::time::sleep;

use crate::{
    Redis, Result, TestbedError,
    folder::Folder,
    free_port,
    log::Log,
    program,
    server::{Answer, Server},
};

const PROGRAM: &str = "redis-server";
const HINT: &str = "`apt-get install redis-server`, `dnf install redis` or `brew install redis`";
const CONFIG: &str = "sentinel.conf";
const LOG: &str = "sentinel.log";
/// What the sentinels call the master.
const NAME: &str = "stock";
const SENTINELS: usize = 3;
const QUORUM: usize = 2;
/// When all ports of a group were free and one of them was taken before its sentinel got there, the group is started anew.
const GROUPS_TO_TRY: usize = 5;
const AGREE_WITHIN: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(10);

/// One master, some replicas, three sentinels. Dropping it kills them all.
#[derive(Debug)]
pub struct RedisSentinel {
    servers: Vec<Redis>,
    sentinels: Vec<Sentinel>,
}

impl RedisSentinel {
    /// A master with this many replicas, all of which follow, and sentinels that agree about them. The master is server 0 at first.
    ///
    /// A server counts as failed after half a second of silence.
    pub async fn start(replicas: usize) -> Result<Self> {
        let mut servers = vec![Redis::start().await?];
        for _ in 0..replicas {
            servers.push(Redis::builder().replica_of(&servers[0]).start().await?);
        }
        servers[0].is_followed_by(replicas).await?;
        let sentinels = start_sentinels(&servers).await?;
        let group = Self { servers, sentinels };
        let patience = Patience::new();
        while !group.all_agree().await {
            patience
                .waits_for("all sentinels to know everybody")
                .await?;
        }
        Ok(group)
    }

    /// `redis+sentinel://127.0.0.1:P1,127.0.0.1:P2,127.0.0.1:P3/NAME`
    pub fn url(&self) -> String {
        let addresses: Vec<_> = self
            .sentinels
            .iter()
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.port))
            .collect();
        format!("redis+sentinel://{}/{NAME}", addresses.join(","))
    }

    /// The servers, the first master first.
    pub fn servers(&self) -> &[Redis] {
        &self.servers
    }

    /// The servers, to be killed and restarted.
    pub fn servers_mut(&mut self) -> &mut [Redis] {
        &mut self.servers
    }

    /// The sentinels.
    pub fn sentinels(&self) -> &[Sentinel] {
        &self.sentinels
    }

    /// The sentinels, to be killed and restarted.
    pub fn sentinels_mut(&mut self) -> &mut [Sentinel] {
        &mut self.sentinels
    }

    /// Which server is the master: so say a majority of the sentinels and the server itself.
    pub async fn master(&self) -> Result<usize> {
        let patience = Patience::new();
        loop {
            match self.named().await {
                Some(master) => return Ok(master),
                None => {
                    patience
                        .waits_for("a master that most sentinels name")
                        .await?
                }
            }
        }
    }

    /// Waits until another server than `old` is the master, and returns which.
    pub async fn successor_of(&self, old: usize) -> Result<usize> {
        let patience = Patience::new();
        loop {
            match self.named().await {
                Some(master) if master != old => return Ok(master),
                _ => patience.waits_for("another master").await?,
            }
        }
    }

    /// SIGKILL for the master; returns which server it was, when its replicas have noticed that it is gone. What a replica that
    /// [lags](Redis::lag) has not carried out by then it never will.
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

    /// Has the sentinels choose another master although nothing is wrong, and returns which.
    pub async fn fail_over(&self) -> Result<usize> {
        let old = self.master().await?;
        let sentinel = &self.sentinels[0];
        let told: RedisResult<()> = sentinel
            .ask(cmd("SENTINEL").arg("FAILOVER").arg(NAME))
            .await;
        told.map_err(|source| TestbedError::Redis {
            port: sentinel.port,
            source,
        })?;
        self.successor_of(old).await
    }

    /// Restarts a server that was a master once. It takes itself for one still, until the sentinels tell it otherwise; returns when it
    /// follows the present one.
    pub async fn restart_as_replica(&mut self, server: usize) -> Result<()> {
        self.servers[server].restart().await?;
        self.becomes_replica(server).await
    }

    /// Waits until this server follows a master.
    pub async fn becomes_replica(&self, server: usize) -> Result<()> {
        let follows =
            |info: &InfoDict| info.get::<String>("master_link_status").as_deref() == Some("up");
        self.servers[server]
            .until_replication("it follows nobody", follows)
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

/// For what sentinels need some time for. No async closures: the future of who calls with one is not known to be `Send`.
struct Patience {
    deadline: Instant,
}

impl Patience {
    fn new() -> Self {
        Self {
            deadline: Instant::now() + AGREE_WITHIN,
        }
    }

    /// Waits for a moment, unless it has taken too long already.
    async fn waits_for(&self, what: &str) -> Result<()> {
        if Instant::now() > self.deadline {
            return Err(TestbedError::NoFailover {
                waited: AGREE_WITHIN,
                view: format!("waited for {what}"),
            });
        }
        sleep(POLL).await;
        Ok(())
    }
}

async fn start_sentinels(servers: &[Redis]) -> Result<Vec<Sentinel>> {
    for _ in 1..GROUPS_TO_TRY {
        match try_sentinels(servers).await {
            Err(TestbedError::PortTaken { .. }) => {}
            outcome => return outcome,
        }
    }
    try_sentinels(servers).await
}

/// Each has to name the others before any of them runs, so their ports are chosen together.
async fn try_sentinels(servers: &[Redis]) -> Result<Vec<Sentinel>> {
    let mut ports = Vec::new();
    for _ in 0..SENTINELS {
        ports.push(free_port().await);
    }
    let mut sentinels = Vec::new();
    for port in &ports {
        let mut sentinel = Sentinel::new(*port, &config(*port, &ports, servers))?;
        sentinel.launch().await?;
        sentinels.push(sentinel);
    }
    Ok(sentinels)
}

fn config(port: u16, all: &[u16], servers: &[Redis]) -> String {
    let mut lines = vec![
        format!("port {port}"),
        "bind 127.0.0.1".into(),
        "daemonize no".into(),
        format!("sentinel myid {}", id(port)),
        format!(
            "sentinel monitor {NAME} 127.0.0.1 {} {QUORUM}",
            servers[0].port()
        ),
        // A disk that is slow to flush holds a server up for half a second, on a busy machine.
        format!("sentinel down-after-milliseconds {NAME} 1000"),
        // Twice this is how long they wait after an election that nobody won.
        format!("sentinel failover-timeout {NAME} 3000"),
        format!("sentinel parallel-syncs {NAME} {}", servers.len()),
    ];
    let replicas = servers[1..]
        .iter()
        .map(|replica| format!("sentinel known-replica {NAME} 127.0.0.1 {}", replica.port()));
    lines.extend(replicas);
    let others = all.iter().filter(|other| **other != port);
    lines.extend(others.map(|other| {
        format!(
            "sentinel known-sentinel {NAME} 127.0.0.1 {other} {}",
            id(*other)
        )
    }));
    lines.join("\n") + "\n"
}

/// Forty digits, the same for the same port.
fn id(port: u16) -> String {
    format!("{port:040x}")
}

/// One sentinel, a direct child of this process.
#[derive(Debug)]
pub struct Sentinel {
    // First the sentinel goes, then its folder.
    server: Server,
    folder: Folder,
    port: u16,
}

impl Sentinel {
    fn new(port: u16, config: &str) -> Result<Self> {
        let folder = Folder::new(None)?;
        let path = folder.path().join(CONFIG);
        fs::write(&path, config).map_err(TestbedError::folder(&path))?;
        let server = Server::new("redis-sentinel", Log::new(folder.path().join(LOG)));
        Ok(Self {
            server,
            folder,
            port,
        })
    }

    /// Where it listens. Restarts do not change it.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// SIGKILL, and waits until it is gone.
    pub async fn kill(&mut self) -> Result<()> {
        self.server.kill().await;
        Ok(())
    }

    /// Starts it again, with what it knew: it writes that into its configuration file itself.
    pub async fn restart(&mut self) -> Result<()> {
        self.server.kill().await;
        self.launch().await
    }

    /// SIGSTOP, and waits until it has really stopped.
    pub async fn pause(&self) -> Result<()> {
        self.server.pause().await
    }

    /// SIGCONT.
    pub async fn resume(&self) -> Result<()> {
        self.server.signal(Signal::SIGCONT)
    }

    async fn launch(&mut self) -> Result<()> {
        let mut command = Command::new(program::find(PROGRAM, &[], HINT)?);
        command
            .arg(CONFIG)
            .arg("--sentinel")
            .current_dir(self.folder.path())
            .env("LC_ALL", "C");
        let port = self.port;
        self.server
            .launch(command, port, |pid| ready(port, pid))
            .await?;
        self.hurry()
            .await
            .map_err(|source| TestbedError::Redis { port, source })
    }

    /// A failover with the periods that sentinels have by themselves takes a second more, and an old master that wakes up goes on for ten.
    ///
    /// They ask replicas for news once a second while the master is down, and choose none whose news is older than five pings: with a ping
    /// each 100 ms they found "no good slave" every other time, and waited twice the timeout to try again.
    async fn hurry(&self) -> RedisResult<()> {
        let mut periods = cmd("SENTINEL");
        periods.arg("DEBUG").arg(&[
            "info-period",
            "500",
            "publish-period",
            "200",
            "ping-period",
            "250",
            "ask-period",
            "100",
        ]);
        self.ask(&periods).await
    }

    async fn ask<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> RedisResult<T> {
        ask(self.port, command).await
    }

    /// The port of what it calls the master.
    async fn named_port(&self) -> Option<u16> {
        let answer = self
            .ask::<(String, u16)>(cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(NAME))
            .await;
        answer.ok().map(|(_, port)| port)
    }

    async fn knows(&self, replicas: usize, sentinels: usize) -> bool {
        let master = self
            .ask::<std::collections::HashMap<String, String>>(
                cmd("SENTINEL").arg("MASTER").arg(NAME),
            )
            .await;
        let Ok(master) = master else { return false };
        let number = |field: &str| {
            master
                .get(field)
                .and_then(|text| text.parse::<usize>().ok())
        };
        let known = number("num-slaves") == Some(replicas)
            && number("num-other-sentinels") == Some(sentinels);
        let healthy = master.get("flags").is_some_and(|flags| flags == "master");
        known
            && healthy
            && self
                .ask::<Value>(cmd("SENTINEL").arg("CKQUORUM").arg(NAME))
                .await
                .is_ok()
    }
}

async fn ready(port: u16, pid: u32) -> Answer {
    let info: RedisResult<InfoDict> = ask(port, cmd("INFO").arg("server")).await;
    match info.ok().and_then(|info| info.get::<u32>("process_id")) {
        Some(process) if process == pid => Answer::Ready,
        Some(_) => Answer::Stranger,
        None => Answer::Silent,
    }
}

async fn ask<T: redis::FromRedisValue>(port: u16, command: &redis::Cmd) -> RedisResult<T> {
    let patience = Some(Duration::from_secs(1));
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(patience)
        .set_response_timeout(patience);
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
    command
        .query_async(
            &mut client
                .get_multiplexed_async_connection_with_config(&config)
                .await?,
        )
        .await
}

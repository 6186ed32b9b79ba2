//! A TCP proxy between a client and a server, which holds, delays and cuts their traffic, or leads
//! new connections to another server. It needs no privileges.
//!
//! Held traffic is not lost. The server carries it out as soon as it passes again, even if the
//! sender has given up long ago. A real network behaves the same, because it retransmits what was
//! not confirmed. To lose held traffic, switch from a hold to [`Traffic::Reset`].

use std::{io, net::Ipv4Addr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::sleep,
};

use local::{LocalError, free_port};

use crate::Result;

const PORT_ATTEMPTS_MAX: usize = 10;
const CHUNK_BYTES: usize = 16 * 1024;

/// Treatment of the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Both directions pass.
    Pass,
    /// Both directions wait. Clients can still connect.
    Hold,
    /// Requests wait, and answers pass.
    HoldRequests,
    /// Requests pass, and answers wait.
    HoldAnswers,
    /// Both directions pass after this delay.
    Delay(Duration),
    /// Every connection is cut and loses its held traffic; new connections are cut immediately.
    Reset,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Answers,
}

impl Traffic {
    fn holds(self, direction: Direction) -> bool {
        match self {
            // A reset loses the held traffic, so none may pass just before the cut.
            Self::Hold | Self::Reset => true,
            Self::HoldRequests => direction == Direction::Requests,
            Self::HoldAnswers => direction == Direction::Answers,
            Self::Pass | Self::Delay(_) => false,
        }
    }

    fn delay(self) -> Duration {
        if let Self::Delay(delay) = self {
            delay
        } else {
            Duration::ZERO
        }
    }
}

/// Instruction that all connections follow.
#[derive(Clone, Copy, Debug)]
struct Instruction {
    traffic: Traffic,
    /// Port of the server that new connections reach.
    target: u16,
    /// Number of resets so far. A connection that misses the reset itself sees this number change.
    resets: u64,
}

/// A port that forwards to another one. Dropping it cuts its connections.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    traffic: watch::Sender<Instruction>,
    listening: JoinHandle<()>,
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1 for the server on the port `target`, which need not run
    /// yet.
    pub async fn start(target: u16) -> Result<Self> {
        let (listener, port) = listen().await?;
        let (traffic, watched) = watch::channel(Instruction {
            traffic: Traffic::Pass,
            target,
            resets: 0,
        });
        let listening = tokio::spawn(serve(listener, watched));
        Ok(Self {
            port,
            traffic,
            listening,
        })
    }

    /// Port for clients.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Changes the treatment of existing and new connections.
    pub fn set(&self, traffic: Traffic) {
        self.traffic.send_modify(|now| {
            now.traffic = traffic;
            now.resets += u64::from(traffic == Traffic::Reset);
        });
    }

    /// Forwards new connections to another server, as a name does that resolves to another address
    /// now. Existing connections stay where they are.
    pub fn set_target(&self, target: u16) {
        self.traffic.send_modify(|now| now.target = target);
    }

    /// The present treatment.
    pub fn traffic(&self) -> Traffic {
        self.traffic.borrow().traffic
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn listen() -> Result<(TcpListener, u16)> {
    let mut port = free_port().await;
    for _ in 1..PORT_ATTEMPTS_MAX {
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            return Ok((listener, port));
        }
        port = free_port().await;
    }
    Err(LocalError::PortTaken { port }.into())
}

/// The connections are tasks of this future, so that they end with it.
async fn serve(listener: TcpListener, traffic: watch::Receiver<Instruction>) {
    let mut connections = JoinSet::new();
    loop {
        if let Ok((client, _)) = listener.accept().await {
            connections.spawn(connection(client, traffic.clone()));
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(client: TcpStream, traffic: watch::Receiver<Instruction>) {
    // A dropped socket then resets the connection immediately, as a dead server does, instead of
    // after the remaining data.
    let _ = client.set_zero_linger();
    let began = *traffic.borrow();
    if began.traffic == Traffic::Reset {
        return;
    }
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, began.target)).await else {
        return;
    };
    let _ = (
        server.set_zero_linger(),
        server.set_nodelay(true),
        client.set_nodelay(true),
    );
    let mut cut = traffic.clone();
    tokio::select! {
        _ = both_ways(client, server, traffic) => {}
        _ = cut.wait_for(|now| now.resets > began.resets) => {}
    }
}

async fn both_ways(
    client: TcpStream,
    server: TcpStream,
    traffic: watch::Receiver<Instruction>,
) -> io::Result<()> {
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    let requests = pump(from_client, to_server, Direction::Requests, traffic.clone());
    let answers = pump(from_server, to_client, Direction::Answers, traffic);
    tokio::try_join!(requests, answers).map(|_| ())
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    direction: Direction,
    mut instruction: watch::Receiver<Instruction>,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let bytes = from.read(&mut chunk).await?;
        let delay = instruction
            .wait_for(|now| !now.traffic.holds(direction))
            .await
            .map_err(io::Error::other)?
            .traffic
            .delay();
        if !delay.is_zero() {
            sleep(delay).await;
        }
        if bytes == 0 {
            return to.shutdown().await;
        }
        to.write_all(&chunk[..bytes]).await?;
    }
}

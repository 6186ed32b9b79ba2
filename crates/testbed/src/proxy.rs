//! A TCP proxy between a client and a server, which holds, delays and cuts what they say to each other. It needs no privileges.
//!
//! What a reader could get wrong: what is held is not lost. It is carried out as soon as the traffic passes again, also if its sender has
//! given up long ago, as it is with a real network that sends again what was not confirmed. To lose it, go from holding to
//! [`Traffic::Reset`].

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

use crate::{Result, TestbedError, free_port};

const PORTS_TO_TRY: usize = 10;
const CHUNK_BYTES: usize = 16 * 1024;

/// What becomes of what they say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// It arrives.
    Pass,
    /// It waits, in both directions. Connections can still be made.
    Hold,
    /// The server hears nothing, and what it says arrives.
    HoldRequests,
    /// The server hears everything, and nobody hears what it says.
    HoldAnswers,
    /// It arrives so much later.
    Delay(Duration),
    /// Every connection is cut, what was held on it is lost, and a new one is cut at once.
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
            // What waits when the connection is cut is lost, so it must not slip through just before.
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

/// What the connections go by.
#[derive(Clone, Copy, Debug)]
struct Order {
    traffic: Traffic,
    /// How often connections were cut. A connection that looks too late to see a cut sees this.
    resets: u64,
}

/// A port in front of another one. Dropping it cuts its connections.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    traffic: watch::Sender<Order>,
    listening: JoinHandle<()>,
}

impl Proxy {
    /// Listens on 127.0.0.1, for the server on `target` there, which need not run yet.
    pub async fn start(target: u16) -> Result<Self> {
        let (listener, port) = listen().await?;
        let (traffic, watched) = watch::channel(Order {
            traffic: Traffic::Pass,
            resets: 0,
        });
        let listening = tokio::spawn(serve(listener, target, watched));
        Ok(Self {
            port,
            traffic,
            listening,
        })
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on, for connections that there are and for new ones.
    pub fn set(&self, traffic: Traffic) {
        self.traffic.send_modify(|order| {
            order.traffic = traffic;
            order.resets += u64::from(traffic == Traffic::Reset);
        });
    }

    /// What becomes of what they say now.
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
    for _ in 1..PORTS_TO_TRY {
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            return Ok((listener, port));
        }
        port = free_port().await;
    }
    Err(TestbedError::PortTaken { port })
}

/// The connections are tasks of this one, so that they end with it.
async fn serve(listener: TcpListener, target: u16, traffic: watch::Receiver<Order>) {
    let mut connections = JoinSet::new();
    loop {
        if let Ok((client, _)) = listener.accept().await {
            connections.spawn(connection(client, target, traffic.clone()));
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(client: TcpStream, target: u16, traffic: watch::Receiver<Order>) {
    // When the socket is dropped the client is told so at once, as by a server that is gone, instead of after what is still to be sent.
    let _ = client.set_zero_linger();
    let began = *traffic.borrow();
    if began.traffic == Traffic::Reset {
        return;
    }
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await else {
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
        _ = cut.wait_for(|order| order.resets > began.resets) => {}
    }
}

async fn both_ways(
    client: TcpStream,
    server: TcpStream,
    traffic: watch::Receiver<Order>,
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
    mut order: watch::Receiver<Order>,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let bytes = from.read(&mut chunk).await?;
        let delay = order
            .wait_for(|order| !order.traffic.holds(direction))
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

//! One ZooKeeper server.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpStream},
    time::Duration,
};

use testbed::{ZooKeeper, timeout, zookeeper::ZooKeeperKind};

use crate::{contract::Probe, support::exchange_within};

/// A new server has the nodes `/`, `/zookeeper`, `/zookeeper/config` and `/zookeeper/quota`, and
/// counts one more.
const NODES_AT_FIRST: u32 = 5;

impl Probe for ZooKeeperKind {
    const KEPT: &'static str = "with a space, and é";
    const WRONG_SETTING: (&'static str, &'static str) = ("tickTime", "soon");
    const COMPLAINT: &'static str = "soon";

    fn url(server: &ZooKeeper) -> String {
        server.url()
    }

    async fn write(server: &ZooKeeper) {
        let mut session = Session::open(server, 1000).unwrap();
        session.create("/a").unwrap();
    }

    async fn written(server: &ZooKeeper, timeout: Duration) -> io::Result<u32> {
        let response = exchange_within(timeout, server.port(), b"srvr")?;
        let nodes: Option<u32> = response
            .lines()
            .find_map(|line| line.strip_prefix("Node count: ")?.parse().ok());
        let nodes = nodes.ok_or_else(|| io::Error::other(response))?;
        Ok(nodes.checked_sub(NODES_AT_FIRST).unwrap())
    }
}

/// A minimal client session. The protocol consists of packets of big-endian numbers, each preceded
/// by its length.
struct Session {
    stream: TcpStream,
    timeout_ms: u32,
}

impl Session {
    fn open(zookeeper: &ZooKeeper, timeout_ms: u32) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, zookeeper.port()))?;
        stream.set_read_timeout(Some(timeout()))?;
        let mut session = Self { stream, timeout_ms };
        // Version, last transaction seen, timeout, session, password.
        let response = session.ask(
            &[
                &[0; 12][..],
                &timeout_ms.to_be_bytes(),
                &[0; 8],
                &16_u32.to_be_bytes(),
                &[0; 16],
            ]
            .concat(),
        )?;
        session.timeout_ms = u32::from_be_bytes(response[4..8].try_into().unwrap());
        Ok(session)
    }

    /// Creates a persistent node without data that every client may read and change.
    fn create(&mut self, path: &str) -> io::Result<()> {
        const CREATE: u32 = 1;
        const ALL: u32 = 31;
        let number = |n: u32| n.to_be_bytes().to_vec();
        let text = |text: &str| {
            [
                &u32::try_from(text.len()).unwrap().to_be_bytes()[..],
                text.as_bytes(),
            ]
            .concat()
        };
        let request = [
            number(1),
            number(CREATE),
            text(path),
            number(0),
            number(1),
            number(ALL),
            text("world"),
            text("anyone"),
            number(0),
        ];
        // The request's number, the transaction, the error.
        let response = self.ask(&request.concat())?;
        assert_eq!(response[12..16], [0; 4], "the error that {path} met");
        Ok(())
    }

    fn ask(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        self.stream
            .write_all(&u32::try_from(request.len()).unwrap().to_be_bytes())?;
        self.stream.write_all(request)?;
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut answer)?;
        Ok(answer)
    }
}

#[tokio::test]
async fn session_timeouts_from_200_ms_to_a_minute_are_granted() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    for (wanted, granted) in [(1, 200), (300, 300), (60_000, 60_000)] {
        assert_eq!(
            Session::open(&zookeeper, wanted).unwrap().timeout_ms,
            granted
        );
    }
}

#[tokio::test]
async fn a_start_can_be_spawned() {
    let zookeeper = tokio::spawn(ZooKeeper::start()).await.unwrap().unwrap();
    tokio::spawn(zookeeper.stop()).await.unwrap().unwrap();
}

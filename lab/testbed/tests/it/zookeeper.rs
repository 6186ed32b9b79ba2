//! One ZooKeeper server.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpStream},
    path::PathBuf,
    time::Duration,
};

use testbed::{LocalError, TestbedError, ZooKeeper, timeout};

use crate::support::{SILENCE, exchange_within, is_alive};

/// A new server has the nodes `/`, `/zookeeper`, `/zookeeper/config` and `/zookeeper/quota`, and
/// counts one more.
const NODES_AT_FIRST: u32 = 5;

fn nodes(zookeeper: &ZooKeeper) -> io::Result<u32> {
    nodes_within(timeout(), zookeeper)
}

fn nodes_within(timeout: Duration, zookeeper: &ZooKeeper) -> io::Result<u32> {
    let response = exchange_within(timeout, zookeeper.port(), b"srvr")?;
    let count = response
        .lines()
        .find_map(|line| line.strip_prefix("Node count: ")?.parse().ok());
    count.ok_or_else(|| io::Error::other(response))
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
async fn acknowledged_writes_survive_kill_and_restart() {
    let mut zookeeper = ZooKeeper::start().await.unwrap();
    assert_eq!(nodes(&zookeeper).unwrap(), NODES_AT_FIRST);
    Session::open(&zookeeper, 1000)
        .unwrap()
        .create("/a")
        .unwrap();
    let (url, pid) = (zookeeper.url(), zookeeper.pid());
    zookeeper.kill().await.unwrap();
    assert!(nodes(&zookeeper).is_err());
    zookeeper.restart().await.unwrap();
    assert_eq!(zookeeper.url(), url);
    assert_ne!(zookeeper.pid(), pid);
    assert_eq!(nodes(&zookeeper).unwrap(), NODES_AT_FIRST + 1);
    zookeeper.stop().await.unwrap();
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
async fn a_paused_server_is_silent_until_it_is_resumed() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    zookeeper.pause().await.unwrap();
    assert!(nodes_within(SILENCE, &zookeeper).is_err());
    zookeeper.resume().await.unwrap();
    assert_eq!(nodes(&zookeeper).unwrap(), NODES_AT_FIRST);
}

#[tokio::test]
async fn a_killed_server_reports_that_it_is_not_running() {
    let mut zookeeper = ZooKeeper::start().await.unwrap();
    zookeeper.kill().await.unwrap();
    assert!(matches!(
        zookeeper.pause().await,
        Err(TestbedError::Local(LocalError::NotRunning { .. }))
    ));
    zookeeper
        .kill()
        .await
        .expect("killing twice is killing once");
}

#[tokio::test]
async fn a_dropped_or_stopped_server_is_gone_with_its_folder() {
    let (dropped, stopped) = tokio::join!(ZooKeeper::start(), ZooKeeper::start());
    let (dropped, stopped) = (dropped.unwrap(), stopped.unwrap());
    assert_ne!(dropped.port(), stopped.port());
    let left = [&dropped, &stopped].map(|server| (server.pid(), PathBuf::from(server.dir())));
    assert!(
        left.iter()
            .all(|(pid, folder)| is_alive(*pid) && folder.exists())
    );
    drop(dropped);
    stopped.stop().await.unwrap();
    assert!(
        left.iter()
            .all(|(pid, folder)| !is_alive(*pid) && !folder.exists())
    );
}

#[tokio::test]
async fn another_zookeeper_on_a_fixed_port_is_not_taken_for_ours() {
    let first = ZooKeeper::start().await.unwrap();
    let outcome = ZooKeeper::builder().port(first.port()).start().await;
    assert!(
        matches!(outcome, Err(TestbedError::Local(LocalError::PortTaken { port })) if port == first.port())
    );
    assert_eq!(nodes(&first).unwrap(), NODES_AT_FIRST);
}

#[tokio::test]
async fn a_kept_folder_keeps_its_data() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("with a space, and é");
    let zookeeper = ZooKeeper::builder().dir(&kept).start().await.unwrap();
    Session::open(&zookeeper, 1000)
        .unwrap()
        .create("/a")
        .unwrap();
    zookeeper.stop().await.unwrap();
    let zookeeper = ZooKeeper::builder().dir(&kept).start().await.unwrap();
    assert_eq!(nodes(&zookeeper).unwrap(), NODES_AT_FIRST + 1);
}

#[tokio::test]
async fn the_error_of_a_failed_start_quotes_the_log() {
    let error = ZooKeeper::builder()
        .config("tickTime", "soon")
        .start()
        .await
        .err()
        .unwrap();
    assert!(matches!(
        error,
        TestbedError::Local(LocalError::EndedAtStart { .. })
    ));
    assert!(error.to_string().contains("soon"), "{error}");
}

#[tokio::test]
async fn a_start_can_be_spawned() {
    let zookeeper = tokio::spawn(ZooKeeper::start()).await.unwrap().unwrap();
    tokio::spawn(zookeeper.stop()).await.unwrap().unwrap();
}

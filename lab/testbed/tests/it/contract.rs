//! What six kinds of servers promise. A kind takes part with a [`Probe`], a line of
//! `on_every_server!`, and one of `on_every_single_process!` if it can be paused. RabbitMQ, which
//! takes seconds to start, and PgBouncer have tests of their own.

use std::{
    io::{self, ErrorKind},
    path::PathBuf,
    time::Duration,
};

use testbed::{
    LocalError, TestbedError,
    server::{Server, SingleProcess, TestKind},
    timeout,
};
use testkit_macros::tested;

use crate::support::{SILENCE, is_alive, reachable_folder};

/// How the contract writes to a kind of server, and finds again what it wrote.
pub trait Probe: TestKind {
    /// Number of writes that [`Self::write`] makes.
    const WRITES: u32 = 1;
    /// The error of [`Self::written`] at a paused server.
    const SILENCE_IS: ErrorKind = ErrorKind::WouldBlock;
    /// Name of a kept folder. It may be hard to pass on.
    const KEPT: &'static str = "with a space";
    /// A setting with which no server starts.
    const WRONG_SETTING: (&'static str, &'static str);
    /// What the log then says.
    const COMPLAINT: &'static str;

    /// Where clients find the server.
    fn url(server: &Server<Self>) -> String;

    /// Writes to a server that has none of it yet. Returns when the writes are acknowledged, or in
    /// the folder of the server.
    async fn write(server: &Server<Self>);

    /// Number of those writes that the server or its folder has, if it answers within the
    /// time-out. A server that cannot be paused may take longer.
    async fn written(server: &Server<Self>, timeout: Duration) -> io::Result<u32>;
}

/// Makes a test of a promise for each kind of server.
macro_rules! on_every_server {
    ($test:ident) => {
        on_every_server! { $test:
            redis: testbed::redis::RedisKind,
            postgres: testbed::postgres::PostgresKind,
            mariadb: testbed::mariadb::MariaDbKind,
            zookeeper: testbed::zookeeper::ZooKeeperKind,
            etcd: testbed::etcd::EtcdKind,
            nats: testbed::nats::NatsKind,
        }
    };
    ($test:ident: $($case:ident: $kind:ty,)+) => {
        mod $test {
            $(
                #[tokio::test]
                async fn $case() {
                    super::$test::<$kind>().await;
                }
            )+
        }
    };
}

/// The same for servers that can be paused. PostgreSQL has many processes, and cannot.
macro_rules! on_every_single_process {
    ($test:ident) => {
        on_every_server! { $test:
            redis: testbed::redis::RedisKind,
            mariadb: testbed::mariadb::MariaDbKind,
            zookeeper: testbed::zookeeper::ZooKeeperKind,
            etcd: testbed::etcd::EtcdKind,
            nats: testbed::nats::NatsKind,
        }
    };
}

async fn start<K: Probe>() -> Server<K> {
    Server::start().await.unwrap()
}

async fn written<K: Probe>(server: &Server<K>) -> u32 {
    K::written(server, timeout()).await.unwrap()
}

#[tested(on_every_server)]
async fn acknowledged_writes_survive_kill_and_restart<K: Probe>() {
    let mut server = start::<K>().await;
    assert_eq!(written(&server).await, 0);
    K::write(&server).await;
    let (url, port, pid) = (K::url(&server), server.port(), server.pid());
    server.kill().await.unwrap();
    assert!(K::written(&server, timeout()).await.is_err());
    server.restart().await.unwrap();
    assert_eq!((K::url(&server), server.port()), (url, port));
    assert_ne!(server.pid(), pid);
    assert_eq!(written(&server).await, K::WRITES);
    server.stop().await.unwrap();
}

#[tested(on_every_single_process)]
async fn a_paused_server_is_silent_until_it_is_resumed<K: Probe + SingleProcess>() {
    let server = start::<K>().await;
    server.pause().await.unwrap();
    server.pause().await.expect("pausing twice is pausing once");
    let silence = K::written(&server, SILENCE).await.unwrap_err();
    assert_eq!(silence.kind(), K::SILENCE_IS, "{silence}");
    server.resume().await.unwrap();
    assert_eq!(written(&server).await, 0);
    K::write(&server).await;
}

#[tested(on_every_single_process)]
async fn a_killed_server_reports_that_it_is_not_running<K: Probe + SingleProcess>() {
    let mut server = start::<K>().await;
    server.kill().await.unwrap();
    assert!(matches!(
        server.pause().await,
        Err(TestbedError::Local(LocalError::NotRunning { .. }))
    ));
    server.kill().await.expect("killing twice is killing once");
}

#[tested(on_every_server)]
async fn a_dropped_or_stopped_server_is_gone_with_its_folder<K: Probe>() {
    let (dropped, stopped) = tokio::join!(start::<K>(), start::<K>());
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

#[tested(on_every_server)]
async fn another_server_on_a_fixed_port_is_not_taken_for_ours<K: Probe>() {
    let first = start::<K>().await;
    let outcome = Server::<K>::builder().port(first.port()).start().await;
    assert!(
        matches!(outcome, Err(TestbedError::Local(LocalError::PortTaken { port })) if port == first.port())
    );
    K::write(&first).await;
    assert_eq!(written(&first).await, K::WRITES);
}

#[tested(on_every_server)]
async fn concurrently_started_servers_are_different_servers<K: Probe>() {
    let (a, b, c) = tokio::join!(start::<K>(), start::<K>(), start::<K>());
    assert!(a.port() != b.port() && b.port() != c.port() && a.port() != c.port());
    K::write(&a).await;
    assert_eq!((written(&b).await, written(&c).await), (0, 0));
}

#[tested(on_every_server)]
async fn a_kept_folder_keeps_its_data_on_another_port<K: Probe>() {
    let folder = reachable_folder();
    let kept = folder.path().join(K::KEPT);
    let start = async || Server::<K>::builder().dir(&kept).start().await.unwrap();
    let server = start().await;
    K::write(&server).await;
    let port = server.port();
    server.stop().await.unwrap();
    let server = start().await;
    assert_ne!(server.port(), port);
    assert_eq!(written(&server).await, K::WRITES);
    drop(server);
    assert_eq!(written(&start().await).await, K::WRITES);
}

#[tested(on_every_server)]
async fn the_error_of_a_failed_start_quotes_the_log<K: Probe>() {
    let (key, value) = K::WRONG_SETTING;
    let outcome = Server::<K>::builder().config(key, value).start().await;
    let error = outcome.err().unwrap();
    assert!(matches!(
        error,
        TestbedError::Local(LocalError::EndedAtStart { .. })
    ));
    assert!(error.to_string().contains(K::COMPLAINT), "{error}");
}

//! etcd, checked with its own metrics.

use std::time::Instant;

use lock::{EtcdBuilder, InvalidArgument, Lock};
use testkit_macros::tested_in;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::sleep,
};

use super::{Queue, next, refuses_duration, waits};
use crate::{
    contract::{TestEnv, etcd::EtcdEnv},
    stalls::unless_stalled,
    support::{becomes, deadline, ms, name},
};

impl EtcdEnv {
    async fn metric(&self, metric: &str) -> usize {
        let mut stream = TcpStream::connect(self.url().trim_start_matches("http://"))
            .await
            .unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.0\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let value = answer
            .lines()
            .find_map(|line| line.strip_prefix(metric)?.trim().parse::<f64>().ok());
        value.expect("the server has this metric") as usize
    }
}

impl Queue for EtcdEnv {
    async fn queue(&self, name: &str) -> Vec<i64> {
        self.keys(name)
            .await
            .iter()
            .map(|kv| kv.create_revision())
            .collect()
    }

    async fn watches(&self) -> usize {
        self.metric("etcd_debugging_mvcc_watcher_total").await
    }

    async fn pause(&self) {
        self.server().pause().await.unwrap();
    }

    async fn resume(&self) {
        self.server().resume().await.unwrap();
    }
}

#[tested_in(unless_stalled(EtcdEnv::LEASE))]
async fn a_release_notifies_one_waiter() {
    let (env, name) = (EtcdEnv::own().await, name("one is notified"));
    let guard = env.client().await.acquire(&name).await.unwrap().renewed();
    let mut waiters = Default::default();
    for _ in 0..5 {
        waits(&env, &mut waiters, &name).await;
    }
    becomes("all clients watch", async || env.watches().await == 6).await;
    let before = env.metric("etcd_debugging_mvcc_events_total").await;
    guard.release().await.unwrap();
    let _guard = next(&mut waiters).await.renewed();
    sleep(ms(200)).await;
    let notified = env.metric("etcd_debugging_mvcc_events_total").await - before;
    assert!(
        (1..=2).contains(&notified),
        "the next waiter, and perhaps the releasing client: {notified}"
    );
}

#[tested_in(unless_stalled(EtcdEnv::LEASE))]
async fn no_lease_is_left_behind() {
    let (env, name) = (EtcdEnv::own().await, name("leases"));
    let lock = env.client().await;
    let guard = lock.acquire(&name).await.unwrap();
    assert!(lock.try_acquire(&name).await.is_err());
    assert!(lock.acquire_within(&name, ms(100)).await.is_err());
    becomes("only the holder has a lease", async || {
        env.leases().await == 1
    })
    .await;
    guard.release().await.unwrap();
    becomes("no client has a lease", async || env.leases().await == 0).await;
    drop(lock.acquire(&name).await.unwrap());
    becomes("no client has a lease", async || env.leases().await == 0).await;
}

/// The server has a shortest lease. The guard may use the granted lease, and must not use a longer
/// one that was requested.
#[tested_in(unless_stalled(EtcdEnv::LEASE))]
async fn the_guard_uses_the_granted_lease() {
    let env = EtcdEnv::shared().await;
    let lock = EtcdBuilder::new([env.url()])
        .lease(ms(1200))
        .timeout(ms(1000))
        .build()
        .await
        .unwrap();
    let began = Instant::now();
    let guard = lock.acquire(&name("granted")).await.unwrap();
    let acquired = Instant::now();
    let ends = deadline(&guard);
    assert!(
        ends > began + ms(1700) && ends < acquired + ms(2000),
        "{:?}",
        ends - began
    );
    guard.release().await.unwrap();
}

#[tokio::test]
async fn invalid_settings_are_refused() {
    let none: [&str; 0] = [];
    assert!(matches!(
        EtcdBuilder::new(none).build().await,
        Err(InvalidArgument::Nodes(_))
    ));
    let found = EtcdBuilder::new(["ftp://u:secret@host"])
        .build()
        .await
        .err()
        .unwrap();
    assert!(
        matches!(&found, InvalidArgument::Url { .. }) && !found.to_string().contains("secret"),
        "{found}"
    );
    let builder = EtcdBuilder::new(["http://127.0.0.1:1"]);
    refuses_duration("lease", builder.clone().lease(ms(1)).build().await);
    refuses_duration("timeout", builder.clone().timeout(ms(10_000)).build().await);
    refuses_duration("retry", builder.retry(ms(0)).build().await);
}

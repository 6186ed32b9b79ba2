//! ZooKeeper, checked with its four-letter commands.

use std::collections::BTreeMap;

use lock::ZooKeeperBuilder;
use testkit_macros::tested_in;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use zookeeper_client::CreateMode;

use super::{Queue, next, refuses_duration, refuses_url, waits};
use crate::{
    contract::{TestEnv, zookeeper::ZooKeeperEnv},
    stalls::unless_stalled,
    support::{becomes, is_free, ms, name},
};

impl ZooKeeperEnv {
    /// How many sessions watch each path.
    async fn watched(&self) -> BTreeMap<String, usize> {
        let mut stream = TcpStream::connect(self.url()).await.unwrap();
        stream.write_all(b"wchp").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let mut watched = BTreeMap::new();
        let mut path = "";
        for line in answer.lines().filter(|line| !line.is_empty()) {
            match line.strip_prefix('\t') {
                Some(_session) => *watched.entry(path.to_owned()).or_default() += 1,
                None => path = line,
            }
        }
        watched
    }
}

impl Queue for ZooKeeperEnv {
    async fn queue(&self, name: &str) -> Vec<i64> {
        let client = self.raw().await;
        let mut queue = Vec::new();
        for node in self.nodes(&client, name).await {
            queue.extend(
                client
                    .check_stat(&node)
                    .await
                    .unwrap()
                    .map(|stat| stat.czxid),
            );
        }
        queue
    }

    async fn watches(&self) -> usize {
        self.watched().await.values().sum()
    }

    async fn pause(&self) {
        self.server().pause().await.unwrap();
    }

    async fn resume(&self) {
        self.server().resume().await.unwrap();
    }
}

#[tested_in(unless_stalled(ZooKeeperEnv::LEASE))]
async fn each_waiter_watches_only_the_node_ahead() {
    let (env, name) = (ZooKeeperEnv::own().await, name("predecessors"));
    let guard = env.client().await.acquire(&name).await.unwrap().renewed();
    let mut waiters = Default::default();
    for _ in 0..5 {
        waits(&env, &mut waiters, &name).await;
    }
    let nodes = env.nodes(&env.raw().await, &name).await;
    // The holder watches its own node as well; no client watches the last node.
    let mut expected: BTreeMap<_, _> = nodes[..5].iter().map(|node| (node.clone(), 1)).collect();
    expected.insert(nodes[0].clone(), 2);
    becomes("each client watches the node ahead", async || {
        env.watched().await == expected
    })
    .await;
    guard.release().await.unwrap();
    let _guard = next(&mut waiters).await.renewed();
    expected.remove(&nodes[0]);
    expected.insert(nodes[1].clone(), 2);
    becomes("only the first waiter has moved its watch", async || {
        env.watched().await == expected
    })
    .await;
}

/// The numbers of nodes start again with a new parent; the tokens do not.
#[tested_in(unless_stalled(ZooKeeperEnv::LEASE))]
async fn tokens_rise_after_the_node_numbers_start_again() {
    let (env, name) = (ZooKeeperEnv::shared().await, name("numbers"));
    let (lock, client) = (env.client().await, env.raw().await);
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let guard = lock.acquire(&name).await.unwrap();
        let nodes = env.nodes(&client, &name).await;
        assert!(nodes[0].ends_with("-0000000000"), "{nodes:?}");
        tokens.push(guard.token());
        guard.release().await.unwrap();
        client
            .delete(&format!("/locks/{}", name.replace(' ', "_20")), None)
            .await
            .unwrap();
    }
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
}

/// A node as Curator creates it.
#[tested_in(unless_stalled(ZooKeeperEnv::LEASE))]
async fn a_node_of_another_library_is_waited_for() {
    let (env, name) = (ZooKeeperEnv::shared().await, name("other library"));
    let lock = env.client().await;
    is_free(lock.acquire(&name)).await;
    let client = env.raw().await;
    let stem = format!("/locks/{}/_c_0b3e-lock-", name.replace(' ', "_20"));
    let options = CreateMode::EphemeralSequential.with_acls(zookeeper_client::Acls::anyone_all());
    let (_, number) = client.create(&stem, &[], &options).await.unwrap();
    assert!(lock.acquire_within(&name, ms(300)).await.is_err());
    client
        .delete(&format!("{stem}{number}"), None)
        .await
        .unwrap();
    is_free(lock.acquire(&name)).await;
}

#[tokio::test]
async fn invalid_settings_are_refused() {
    for servers in ["", "one:1,,two:2", "http://host:2181", "user@host:1"] {
        refuses_url(servers, ZooKeeperBuilder::new(servers).build().await);
    }
    let builder = ZooKeeperBuilder::new("127.0.0.1:1");
    for root in ["", "/", "locks", "/locks/", "/a//b", "/a/../b"] {
        refuses_url(root, builder.clone().root(root).build().await);
    }
    assert!(builder.clone().root("/a/b").build().await.is_ok());
    refuses_duration("lease", builder.clone().lease(ms(1)).build().await);
    refuses_duration("tick_time", builder.clone().lease(ms(3000)).build().await);
    refuses_duration("timeout", builder.timeout(ms(10_000)).build().await);
}

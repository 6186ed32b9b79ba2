//! Nodes that the operator declares durable: after a restart they vote at once if they still have
//! their votes, and they wait if anything speaks against it.

use std::{fs, time::Instant};

use futures::future::join_all;
use lock::{Durability, Lock as _, LockError, Redlock, RedlockBuilder, Standing};
use testbed::{AppendFsync, Redis, in_time, timeout};
use tokio::time::sleep;

use crate::support::{
    HOUR, acquire_everywhere, becomes, count, get, holding, is_held, kept_out, ms, refused, run,
    start, token,
};

const GENERATION: &str = "lock:node:generation";

/// A node that does not vote at once votes after a lease, and no test waits for so long.
fn builder(servers: &[Redis]) -> RedlockBuilder {
    RedlockBuilder::new(
        servers
            .iter()
            .map(|server| format!("{}?durable=true", server.url())),
    )
    .lease(HOUR)
    .node_timeout(timeout())
}

/// A client that is not told that the nodes are durable.
fn plain(servers: &[Redis]) -> Redlock {
    let plain = RedlockBuilder::new(servers.iter().map(Redis::url)).lease(HOUR);
    plain
        .node_timeout(timeout())
        .build_without_waiting()
        .unwrap()
}

/// New nodes that all vote.
async fn voting(count: usize) -> (Vec<Redis>, Redlock) {
    let servers = start(count).await;
    let redlock = builder(&servers).build().await.unwrap();
    becomes("all nodes vote", async || votes(&redlock).await == count).await;
    (servers, redlock)
}

async fn votes(redlock: &Redlock) -> usize {
    let nodes = redlock.status().await;
    nodes
        .iter()
        .filter(|node| matches!(node.standing, Standing::Voting))
        .count()
}

/// The first node does not vote, and keeps to that.
async fn the_first_waits(redlock: &Redlock) {
    let first = async || redlock.status().await.swap_remove(0).standing;
    becomes("the first node waits", async || {
        matches!(first().await, Standing::Excluded(_))
    })
    .await;
    sleep(ms(1200)).await;
    let standing = first().await;
    assert!(matches!(standing, Standing::Excluded(_)), "{standing:?}");
}

#[tokio::test]
async fn the_first_run_on_five_new_durable_nodes_does_not_wait() {
    let servers = start(5).await;
    let since = Instant::now();
    let redlock = in_time("a quorum", builder(&servers).build())
        .await
        .unwrap();
    let guard = redlock.try_acquire("first").await.unwrap();
    println!("the first lock after {:?}", since.elapsed());
    assert_eq!(guard.token(), token(1));
    let nodes = redlock.status().await;
    assert!(
        nodes
            .iter()
            .all(|node| node.durability == Durability::Confirmed),
        "{nodes:?}"
    );
}

#[tokio::test]
async fn clients_that_start_together_on_new_durable_nodes_do_not_wait() {
    let servers = start(5).await;
    let clients = join_all((0..6).map(|_| builder(&servers).build()));
    let clients = in_time("a quorum for each", clients).await;
    for (index, client) in clients.into_iter().enumerate() {
        let name = format!("together {index}");
        drop(client.unwrap().try_acquire(&name).await.unwrap());
    }
}

#[tokio::test]
async fn new_nodes_of_which_one_is_not_durable_or_does_not_answer_wait() {
    let mut servers = start(2).await;
    let lazy = Redis::builder().appendfsync(AppendFsync::EverySecond);
    servers.push(lazy.start().await.unwrap());
    let redlock = builder(&servers).build_without_waiting().unwrap();
    the_first_waits(&redlock).await;
    let status = redlock.status().await.swap_remove(2);
    assert!(
        matches!(&status.durability, Durability::Refuted { reason } if reason.contains("appendfsync is everysec")),
        "{status:?}"
    );
    let mut servers = start(3).await;
    servers[2].kill().await.unwrap();
    let redlock = builder(&servers).build_without_waiting().unwrap();
    the_first_waits(&redlock).await;
    // It answers again, but the others have been marked by then.
    servers[2].restart().await.unwrap();
    the_first_waits(&redlock).await;
}

#[tokio::test]
async fn a_new_node_that_another_client_has_marked_waits() {
    let servers = start(3).await;
    let plain = plain(&servers);
    the_first_waits(&plain).await;
    sleep(ms(1100)).await;
    the_first_waits(&builder(&servers).build_without_waiting().unwrap()).await;
}

#[tokio::test]
async fn a_durable_node_that_restarts_votes_at_once() {
    let (mut servers, redlock) = voting(3).await;
    let guard = acquire_everywhere(&redlock, &servers, "restarted").await;
    for server in &mut servers {
        server.restart().await.unwrap();
        let since = Instant::now();
        becomes("it votes again", async || votes(&redlock).await == 3).await;
        println!("voted after {:?}", since.elapsed());
    }
    kept_out(redlock.try_acquire("restarted")).await;
    assert_eq!(holding(&servers, "restarted").await, 3, "all remember");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn three_of_five_durable_nodes_are_killed_within_a_lease_and_the_lock_goes_on() {
    let (mut servers, redlock) = voting(5).await;
    let mut guard = acquire_everywhere(&redlock, &servers, "killed").await;
    for server in &mut servers[..3] {
        server.kill().await.unwrap();
    }
    for server in &mut servers[..3] {
        server.restart().await.unwrap();
    }
    // The first request after the restart may still go to the broken connection.
    becomes("all nodes vote", async || votes(&redlock).await == 5).await;
    guard.extend().await.unwrap();
    let other = builder(&servers).build().await.unwrap();
    kept_out(other.try_acquire("killed")).await;
    let first = guard.token();
    guard.release().await.unwrap();
    let next = other.acquire_within("killed", timeout()).await.unwrap();
    assert!(next.token() > first, "{} after {first}", next.token());
}

#[tokio::test]
async fn a_ballot_lets_durable_nodes_vote_again_that_restarted_since_the_last_look() {
    let (servers, redlock) = voting(5).await;
    let another_run = format!("{}:0:durable", "0".repeat(40));
    for server in &servers {
        run(server, &["SET", GENERATION, &another_run]).await;
    }
    // None of the five may vote before its ballot, and it takes three to acquire.
    let guard = redlock.try_acquire("ballot").await.unwrap();
    assert_eq!(guard.token(), token(1));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_durable_node_that_lost_its_folder_waits_while_the_others_vote() {
    let (mut servers, redlock) = voting(3).await;
    let guard = acquire_everywhere(&redlock, &servers, "wiped").await;
    servers[0].kill().await.unwrap();
    fs::remove_dir_all(servers[0].dir().join("appendonlydir")).unwrap();
    servers[0].restart().await.unwrap();
    the_first_waits(&redlock).await;
    assert_eq!(votes(&redlock).await, 2);
    let status = redlock.status().await.swap_remove(0);
    assert_eq!(status.durability, Durability::Confirmed);
    let error = refused(redlock.try_acquire("wiped").await);
    // One of the two that vote suffices to see that no quorum is left.
    assert!(count(&error, is_held) >= 1, "{error}");
    assert!(
        matches!(error, LockError::Held { .. }),
        "the wiped node gave no vote: {error}"
    );
    drop(guard);
}

#[tokio::test]
async fn a_node_that_was_declared_durable_and_flushes_every_second_waits_after_a_restart() {
    let mut servers = Vec::new();
    for _ in 0..3 {
        let lazy = Redis::builder().appendfsync(AppendFsync::EverySecond);
        servers.push(lazy.start().await.unwrap());
    }
    let short = builder(&servers).lease(ms(1500)).node_timeout(ms(1000));
    let since = Instant::now();
    let redlock = short.build().await.unwrap();
    assert!(since.elapsed() >= ms(1500), "{:?}", since.elapsed());
    becomes("all nodes vote", async || votes(&redlock).await == 3).await;
    drop(redlock);
    let redlock = builder(&servers).build_without_waiting().unwrap();
    becomes("all nodes vote", async || votes(&redlock).await == 3).await;
    servers[0].restart().await.unwrap();
    the_first_waits(&redlock).await;
}

#[tokio::test]
async fn a_node_that_did_not_flush_for_a_while_waits_after_the_next_restart() {
    let (mut servers, redlock) = voting(3).await;
    run(&servers[0], &["CONFIG", "SET", "appendfsync", "everysec"]).await;
    becomes("the node has noted that", async || {
        redlock.status().await;
        get(&servers[0], GENERATION)
            .await
            .is_some_and(|generation| !generation.ends_with(":durable"))
    })
    .await;
    assert_eq!(votes(&redlock).await, 3, "until then it remembers");
    // What the configuration file says holds again.
    servers[0].restart().await.unwrap();
    the_first_waits(&redlock).await;
    let status = redlock.status().await.swap_remove(0);
    assert_eq!(status.durability, Durability::Confirmed);
}

#[tokio::test]
async fn a_client_that_is_not_told_that_nodes_are_durable_waits_after_a_restart() {
    let (mut servers, redlock) = voting(3).await;
    drop(redlock);
    servers[0].restart().await.unwrap();
    let plain = plain(&servers);
    the_first_waits(&plain).await;
    let view = plain.view("x").await.unwrap();
    assert_eq!(view.nodes[0].status.durability, Durability::NotDeclared);
    let view = builder(&servers).build_without_waiting().unwrap();
    let view = view.view("x").await.unwrap();
    assert!(matches!(view.nodes[0].status.standing, Standing::Voting));
}

#[tokio::test]
async fn a_promoted_replica_of_a_durable_node_waits() {
    let (mut servers, redlock) = voting(3).await;
    let replica = Redis::builder()
        .replica_of(&servers[0])
        .start()
        .await
        .unwrap();
    becomes("the replica follows", async || {
        get(&replica, GENERATION).await.is_some()
    })
    .await;
    drop(redlock);
    run(&replica, &["REPLICAOF", "NO", "ONE"]).await;
    servers[0] = replica;
    let redlock = builder(&servers).build_without_waiting().unwrap();
    the_first_waits(&redlock).await;
    let status = redlock.status().await.swap_remove(0);
    assert!(
        matches!(&status.durability, Durability::Refuted { reason } if reason.contains("replica")),
        "{status:?}"
    );
}

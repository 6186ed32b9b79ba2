//! A login that a lock's server refuses for a while, and an address that leads to another server:
//! the same lock works again afterwards, and a held one is kept.

use lock::{Lock, RedisLockBuilder, RedlockBuilder};
use testbed::{Proxy, Redis, RedisUser, timeout};

use crate::support::{HOUR, admit, becomes, get, ms, pttl};

const SHOP: RedisUser = RedisUser {
    name: "shop",
    password: "secret",
};

async fn start(count: usize) -> Vec<Redis> {
    let mut servers = Vec::new();
    for _ in 0..count {
        servers.push(Redis::builder().user(&SHOP).start().await.unwrap());
    }
    servers
}

async fn change_password(servers: &[Redis]) {
    for server in servers {
        server.change_password(&SHOP, "other").await.unwrap();
    }
}

async fn put_it_back(servers: &[Redis]) {
    for server in servers {
        server.create_user(&SHOP).await.unwrap();
    }
}

#[tokio::test]
async fn a_held_lock_is_extended_again_when_its_servers_accept_the_login() {
    let three = start(3).await;
    admit(&three).await;
    let urls = three.iter().map(|server| SHOP.at(&server.url()));
    let redlock = RedlockBuilder::new(urls)
        .lease(HOUR)
        .node_timeout(timeout());
    let redlock = redlock.build().await.unwrap();
    let mut guard = redlock.acquire("held").await.unwrap();
    change_password(&three).await;
    becomes("a refused extension", async || {
        // Another lock by the same connections, which the refusal does not end.
        redlock.try_acquire("other").await.is_err()
    })
    .await;
    put_it_back(&three).await;
    becomes("the lock can be taken again", async || {
        redlock.try_acquire("other").await.is_ok()
    })
    .await;
    guard.extend().await.unwrap();
    guard.release().await.unwrap();
    for server in &three {
        becomes("released", async || get(server, "held").await.is_none()).await;
    }
}

#[tokio::test]
async fn one_server_that_refuses_a_login_for_a_while_serves_again() {
    let one = start(1).await;
    let lock = RedisLockBuilder::new(SHOP.at(&one[0].url()))
        .lease(HOUR)
        .server_timeout(timeout());
    let lock = lock.build().unwrap();
    let mut guard = lock.acquire("held").await.unwrap();
    change_password(&one).await;
    becomes("a refusal", async || {
        lock.try_acquire("other").await.is_err()
    })
    .await;
    put_it_back(&one).await;
    becomes("the lock can be taken again", async || {
        lock.try_acquire("other").await.is_ok()
    })
    .await;
    guard.extend().await.unwrap();
    assert!(pttl(&one[0], "held").await > 0);
}

#[tokio::test]
async fn a_waiting_client_subscribes_anew_and_gets_the_lock() {
    let one = start(1).await;
    // Neither the refusal nor the end of it may be followed by a pause of this length.
    let builder = RedisLockBuilder::new(SHOP.at(&one[0].url()))
        .lease(HOUR)
        .server_timeout(timeout());
    let lock = builder.retry(HOUR).build().unwrap();
    let holder = RedisLockBuilder::new(one[0].url())
        .lease(HOUR)
        .server_timeout(timeout())
        .build()
        .unwrap();
    let guard = holder.acquire("waited for").await.unwrap();
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire_within("waited for", HOUR).await.map(drop) }
    });
    becomes("it listens", async || {
        subscribers(&one[0], "waited for").await == 1
    })
    .await;
    change_password(&one).await;
    becomes("a refusal", async || {
        lock.try_acquire("other").await.is_err()
    })
    .await;
    put_it_back(&one).await;
    becomes("it listens again", async || {
        drop(lock.try_acquire("other").await);
        subscribers(&one[0], "waited for").await == 1
    })
    .await;
    guard.release().await.unwrap();
    testbed::in_time("the lock", waiting)
        .await
        .unwrap()
        .unwrap();
}

/// Those who listen to the channel of releases of a lock, whatever its name is.
async fn subscribers(server: &Redis, lock: &str) -> usize {
    let mut raw = crate::support::raw(server).await;
    let mut channels = redis::cmd("PUBSUB");
    let channels: Vec<String> = channels
        .arg("CHANNELS")
        .query_async(&mut raw)
        .await
        .unwrap();
    let of_lock = |channel: &&String| channel.contains(lock);
    channels.iter().filter(of_lock).count()
}

#[tokio::test]
async fn a_lock_follows_an_address_that_leads_to_another_master() {
    let (old, new) = {
        let old = Redis::builder().user(&SHOP).start().await.unwrap();
        let new = Redis::builder().user(&SHOP).replica_of(&old);
        let new = new.start().await.unwrap();
        old.is_followed_by(1).await.unwrap();
        (old, new)
    };
    let address = Proxy::start(old.port()).await.unwrap();
    let url = SHOP.at(&format!("redis://127.0.0.1:{}", address.port()));
    let lock = RedisLockBuilder::new(url)
        .lease(HOUR)
        .server_timeout(timeout())
        .retry(ms(100))
        .build()
        .unwrap();
    let mut guard = lock.acquire("held").await.unwrap();
    old.hand_over_to(&new).await.unwrap();
    becomes("a refusal", async || {
        lock.try_acquire("other").await.is_err()
    })
    .await;
    assert!(
        old.connections_of(&SHOP).await.unwrap() > 0,
        "it was not cut"
    );
    address.set_target(new.port());
    becomes("the lock can be taken at the new master", async || {
        lock.try_acquire("other").await.is_ok()
    })
    .await;
    guard.extend().await.unwrap();
    assert!(pttl(&new, "held").await > 0);
}

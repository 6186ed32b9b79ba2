//! An acquisition that is dropped at each of its awaits.

use std::{future::poll_fn, pin::pin, task::Poll};

use lock::{Lock, Redlock};
use testbed::{Redis, in_time, timeout};

use crate::support::{
    HOUR, admit, becomes, builder, holding, is_free, is_nowhere, kept_out, ms, name, occupy, start,
    token,
};

/// Servers and a lock whose lease is so long that nothing that is left behind ends by itself within
/// a test.
async fn site() -> (Vec<Redis>, Redlock) {
    let five = start(5).await;
    admit(&five).await;
    let redlock = builder(&five)
        .lease(HOUR)
        .node_timeout(timeout())
        .retry(ms(10))
        .build()
        .await
        .unwrap();
    (five, redlock)
}

/// Polls so often at the most, and drops what is not finished then.
async fn polled<F: Future>(future: F, times: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = times;
    poll_fn(|context| {
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Whatever was still on its way has arrived: the library has asked each node for something after
/// it.
async fn nothing_is_left(five: &[Redis], redlock: &Redlock, names: &[String]) {
    is_free(redlock.acquire("last")).await;
    is_nowhere(five, "last").await;
    for name in names {
        assert_eq!(holding(five, name).await, 0, "{name}");
    }
}

#[tokio::test]
async fn dropped_at_any_await_an_acquisition_of_a_free_lock_leaves_nothing_behind() {
    let (five, redlock) = site().await;
    let (mut names, mut dropped, mut finished) = (Vec::new(), 0, 0);
    for polls in 1..100 {
        let name = name("cancelled");
        let guard = polled(redlock.acquire(&name), polls).await;
        dropped += usize::from(guard.is_none());
        finished = if guard.is_some() { finished + 1 } else { 0 };
        drop(guard);
        is_nowhere(&five, &name).await;
        names.push(name);
        // Not always does it take as many polls: answers come together or apart.
        if finished == 10 {
            break;
        }
    }
    assert_eq!(finished, 10, "it never finished");
    assert!(dropped > 0, "none was dropped before it was finished");
    println!("dropped at {dropped} awaits");
    nothing_is_left(&five, &redlock, &names).await;
}

#[tokio::test]
async fn dropped_at_any_await_an_acquisition_that_waits_leaves_nothing_behind() {
    let (five, redlock) = site().await;
    let (mut names, mut dropped_while_held, mut finished) = (Vec::new(), 0, 0);
    for polls in 1..200 {
        let name = name("waits");
        for server in &five[..3] {
            occupy(server, &name, ms(120)).await;
        }
        let guard = polled(redlock.acquire(&name), polls).await;
        if guard.is_none() {
            dropped_while_held += 1;
            becomes("only the foreign locks are left", async || {
                !holds_any_of_ours(&five, &name).await
            })
            .await;
        }
        finished = if guard.is_some() { finished + 1 } else { 0 };
        drop(guard);
        names.push(name);
        if finished == 3 {
            break;
        }
    }
    assert_eq!(finished, 3, "it never finished");
    assert!(dropped_while_held > 5, "{dropped_while_held}");
    println!("dropped at {dropped_while_held} awaits");
    for name in &names {
        is_nowhere(&five, name).await;
    }
    nothing_is_left(&five, &redlock, &names).await;
}

async fn holds_any_of_ours(servers: &[Redis], name: &str) -> bool {
    for server in servers {
        if crate::support::get(server, name)
            .await
            .is_some_and(|owner| owner != "another owner")
        {
            return true;
        }
    }
    false
}

#[tokio::test]
async fn dropped_at_any_await_a_release_frees_the_lock() {
    let (five, redlock) = site().await;
    let mut names = Vec::new();
    for polls in 1..10 {
        let name = name("release");
        let guard = redlock.acquire(&name).await.unwrap();
        let _ = polled(guard.release(), polls).await;
        is_nowhere(&five, &name).await;
        names.push(name);
    }
    nothing_is_left(&five, &redlock, &names).await;
}

/// An extension whose caller was cancelled does no harm: the lock is as much ours as before,
/// and goes when it is given back.
#[tokio::test]
async fn dropped_at_any_await_an_extension_leaves_the_lock_as_it_was() {
    let (five, redlock) = site().await;
    let mut names = Vec::new();
    for polls in 1..10 {
        let name = name("extend");
        let mut guard = redlock.acquire(&name).await.unwrap();
        let before = guard.validity();
        let extended = polled(guard.extend(), polls).await;
        assert!(!matches!(extended, Some(Err(_))), "{extended:?}");
        assert!(!guard.is_lost());
        if extended.is_none() {
            assert!(
                guard.validity() <= before,
                "the holder does not know that it is longer"
            );
        }
        guard.extend().await.unwrap();
        guard.release().await.unwrap();
        is_nowhere(&five, &name).await;
        names.push(name);
    }
    nothing_is_left(&five, &redlock, &names).await;
}

/// No request waits for nodes that cannot change the outcome.
#[tokio::test]
async fn a_matter_that_is_decided_does_not_wait_for_the_rest() {
    // Of four, two that refuse are enough: the other two could only make a tie.
    let four = start(4).await;
    admit(&four).await;
    let redlock = builder(&four)
        .lease(HOUR)
        .node_timeout(HOUR / 2)
        .build()
        .await
        .unwrap();
    is_free(redlock.acquire("tie")).await;
    is_nowhere(&four, "tie").await;
    for server in &four[..2] {
        occupy(server, "tie", HOUR).await;
    }
    for server in &four[2..] {
        server.pause().await.unwrap();
    }
    // The other two stay silent until then.
    kept_out(in_time("a refusal", redlock.try_acquire("tie"))).await;
    for server in &four[2..] {
        server.resume().await.unwrap();
    }
    // What the two that were stopped took in the end, they have given back.
    let fenced = async |server: &Redis| {
        crate::support::get(server, "tie:fence").await.as_deref() >= Some("2")
    };
    becomes("the late votes have arrived", async || {
        fenced(&four[2]).await && fenced(&four[3]).await
    })
    .await;
    becomes("the late votes are gone", async || {
        holding(&four[2..], "tie").await == 0
    })
    .await;
    assert_eq!(holding(&four[..2], "tie").await, 2);

    // And three that accept are enough for a lock. Its token is above the marks that differ now.
    redlock.observe("three", token(1000)).unwrap();
    four[3].pause().await.unwrap();
    let guard = in_time("a lock", redlock.try_acquire("three"));
    let guard = guard.await.unwrap();
    in_time("a release", guard.release()).await.unwrap();
    four[3].resume().await.unwrap();
    let arrived = async || crate::support::get(&four[3], "three:fence").await.is_some();
    becomes("the late vote has arrived", arrived).await;
    is_nowhere(&four, "three").await;
}

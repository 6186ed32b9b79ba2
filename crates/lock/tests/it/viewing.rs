//! A lock seen from outside.

use std::collections::BTreeSet;

use lock::{Holder, InvalidArgument, Lock, LockError, Request, Standing, Verdict, Wait};
use testbed::{eventually, in_time, timeout};

use crate::support::{
    HOUR, acquire_everywhere, becomes, builder, five, get, holding, name, patient, redlock, start,
};

#[tokio::test]
async fn a_look_sees_who_has_the_lock_and_what_stays_when_it_is_given_back() {
    let (servers, name) = (five().await, name("seen"));
    let (ours, outside) = (
        patient(servers).await,
        builder(servers).build_without_waiting().unwrap(),
    );
    assert_eq!(outside.view(&name).await.unwrap().verdict(), Verdict::Free);
    let guard = acquire_everywhere(&ours, servers, &name).await;
    let view = outside.view(&name).await.unwrap();
    let owner = Holder::Owner(get(&servers[0], &name).await.unwrap());
    assert!(
        view.nodes
            .iter()
            .all(|node| node.holder.as_ref() == Some(&owner) && node.token == Some(guard.token())),
        "{view:?}"
    );
    let Verdict::Held {
        holder,
        token,
        remaining: Some(remaining),
    } = view.verdict()
    else {
        panic!("{view:?}")
    };
    assert_eq!((holder, token), (owner, Some(guard.token())));
    assert!(
        remaining > HOUR - timeout() && remaining <= HOUR,
        "{remaining:?}"
    );
    let last = guard.token();
    guard.release().await.unwrap();
    let view = outside.view(&name).await.unwrap();
    assert_eq!(view.verdict(), Verdict::Free);
    assert!(
        view.nodes
            .iter()
            .filter(|node| node.token == Some(last) && node.remaining.is_none())
            .count()
            >= 3,
        "{view:?}"
    );
}

#[tokio::test]
async fn a_look_sees_those_who_share_the_lock_and_not_those_whose_lease_is_over() {
    let (servers, name) = (five().await, name("shared and seen"));
    let (long, short) = (patient(servers).await, redlock(servers).await);
    let request = Request::new(&name).shared().wait(Wait::AtMost(timeout()));
    let _one = long.request(request).await.unwrap();
    let mut two = short.request(request).await.unwrap();
    let sharers = async || match long.view(&name).await.unwrap().verdict() {
        Verdict::Held {
            holder: Holder::Shared(owners),
            ..
        } => owners,
        _ => BTreeSet::new(),
    };
    eventually("both are seen", async || {
        // A busy machine may lose the short lease between two looks.
        if two.extend().await.is_err() {
            two = short.request(request).await.unwrap();
        }
        sharers().await.len() == 2
    })
    .await;
    two.lost().await;
    // It has not been given back: the nodes still list it when its lease is over.
    std::mem::forget(two);
    becomes("one is seen", async || sharers().await.len() == 1).await;
}

#[tokio::test]
async fn a_look_at_new_nodes_does_not_wait_and_changes_nothing() {
    let (mut servers, name) = (start(3).await, name("new"));
    servers[2].kill().await.unwrap();
    // They vote in an hour.
    let redlock = builder(&servers).lease(HOUR).node_timeout(timeout());
    let redlock = redlock.build_without_waiting().unwrap();
    let view = in_time("the look", redlock.view(&name)).await.unwrap();
    assert_eq!(view.verdict(), Verdict::NoQuorum);
    assert!(
        matches!(view.nodes[0].status.standing, Standing::Excluded(_)),
        "{view:?}"
    );
    assert!(
        matches!(view.nodes[2].status.standing, Standing::Unreachable(_)),
        "{view:?}"
    );
    assert_eq!(
        (
            holding(&servers[..2], &name).await,
            get(&servers[0], "lock:node:generation").await
        ),
        (0, None)
    );
    assert!(matches!(
        redlock.view("").await,
        Err(LockError::Invalid(InvalidArgument::EmptyName))
    ));
}

//! The commands of each library, past any library.

use lock::{Lock, LockError, Redlock};
use testbed::Redis;

use super::peers::{
    DELETE_WHAT_IS_MINE, PEER_TTL_S, PEERS, Peer, SET_ALL_IF_ALL_FREE, SET_ALL_IF_ALL_MINE,
};
use crate::support::{
    acquire_everywhere, becomes, count, is_free, is_held, is_nowhere, kept_out, name, patient, raw,
    refused, uneven_five, value,
};

/// Our leases are shorter than this, those of the peers are longer.
const OURS_OR_THEIRS_MS: i64 = 2 * 60 * 60 * 1000;

/// What each of the servers has.
async fn values(servers: &[Redis], key: &str) -> Vec<Option<Vec<u8>>> {
    let mut values = Vec::new();
    for server in servers {
        values.push(value(server, key).await);
    }
    values
}

async fn longest_pttl(servers: &[Redis], key: &str) -> i64 {
    let mut longest = i64::MIN;
    for server in servers {
        longest = longest.max(
            redis::cmd("PTTL")
                .arg(key)
                .query_async(&mut raw(server).await)
                .await
                .unwrap(),
        );
    }
    longest
}

async fn for_each_peer(test: impl AsyncFn(&Peer, &[Redis], &Redlock, &str)) {
    let five = uneven_five().await;
    let redlock = patient(five).await;
    for peer in &PEERS {
        println!("{}", peer.library);
        test(peer, five, &redlock, &name("interop")).await;
    }
}

#[tokio::test]
async fn a_peer_with_a_majority_keeps_us_out_and_keeps_what_it_has() {
    for_each_peer(async |peer, five, redlock, resource| {
        let key = peer.key(resource);
        for others in [0..2, 3..5] {
            let taken: Vec<_> = (0..5).filter(|index| !others.contains(index)).collect();
            for index in &taken {
                assert_eq!(peer.acquire(&five[*index..=*index], resource).await, 1);
            }
            let error = refused(redlock.try_acquire(&key).await);
            assert!(
                matches!(error, LockError::Held { .. }) && error.is_retryable(),
                "{}: {error}",
                peer.library
            );
            assert_eq!(count(&error, is_held), 3, "{}: {error}", peer.library);
            becomes("nothing of ours stays", async || {
                values(&five[others.clone()], &key)
                    .await
                    .iter()
                    .all(Option::is_none)
            })
            .await;
            for index in taken {
                let server = &five[index..=index];
                assert_eq!(
                    values(server, &key).await,
                    [peer.value()],
                    "{}",
                    peer.library
                );
                assert!(
                    longest_pttl(server, &key).await > OURS_OR_THEIRS_MS,
                    "{}: its lease is its own",
                    peer.library
                );
                assert_ne!(
                    peer.extend(server, resource).await,
                    Some(0),
                    "{}",
                    peer.library
                );
                assert_eq!(peer.release(server, resource).await, 1, "{}", peer.library);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn while_we_have_it_a_peer_can_neither_take_nor_extend_nor_release_it() {
    for_each_peer(async |peer, five, redlock, resource| {
        let key = peer.key(resource);
        let mut guard = acquire_everywhere(redlock, five, &key).await;
        let ours = values(five, &key).await;
        assert_eq!(peer.acquire(five, resource).await, 0, "{}", peer.library);
        assert!(
            matches!(peer.extend(five, resource).await, None | Some(0)),
            "{}",
            peer.library
        );
        assert_eq!(peer.release(five, resource).await, 0, "{}", peer.library);
        assert_eq!(values(five, &key).await, ours, "{}", peer.library);
        assert!(
            longest_pttl(five, &key).await < OURS_OR_THEIRS_MS,
            "{}: our lease is our own",
            peer.library
        );
        guard.extend().await.unwrap();
        guard.release().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn it_goes_from_us_to_a_peer_and_back_and_our_tokens_rise() {
    for_each_peer(async |peer, five, redlock, resource| {
        let key = peer.key(resource);
        let mut last = None;
        for _ in 0..3 {
            let guard = redlock.try_acquire(&key).await.unwrap();
            assert!(
                Some(guard.token()) > last,
                "{}: {} after {last:?}",
                peer.library,
                guard.token()
            );
            last = Some(guard.token());
            guard.release().await.unwrap();
            is_nowhere(five, &key).await;
            assert_eq!(
                peer.acquire(five, resource).await,
                5,
                "{}: what we leave behind is not in its way",
                peer.library
            );
            kept_out(redlock.try_acquire(&key)).await;
            assert_eq!(peer.release(five, resource).await, 5, "{}", peer.library);
        }
    })
    .await;
}

#[tokio::test]
async fn a_peer_with_a_minority_does_not_stop_us_and_loses_nothing() {
    for_each_peer(async |peer, five, redlock, resource| {
        let key = peer.key(resource);
        let (its, rest) = five.split_at(2);
        assert_eq!(peer.acquire(its, resource).await, 2);
        let mut guard = redlock.try_acquire(&key).await.unwrap();
        becomes("the rest is ours", async || {
            values(rest, &key)
                .await
                .iter()
                .all(|value| value.is_some() && *value != peer.value())
        })
        .await;
        guard.extend().await.unwrap();
        assert_eq!(
            values(its, &key).await,
            [peer.value(), peer.value()],
            "{}: extending heals no node that another has",
            peer.library
        );
        guard.release().await.unwrap();
        is_nowhere(rest, &key).await;
        assert_eq!(
            values(its, &key).await,
            [peer.value(), peer.value()],
            "{}",
            peer.library
        );
        assert_eq!(peer.release(its, resource).await, 2, "{}", peer.library);
    })
    .await;
}

/// node-redlock takes all of its resources or none: one of them being ours is enough.
#[tokio::test]
async fn a_peer_that_wants_several_gets_none_if_we_have_one() {
    let five = uneven_five().await;
    let redlock = patient(five).await;
    let (free, ours) = (name("free"), name("ours"));
    let eval = async |script: &str| {
        let mut counts = Vec::new();
        for server in five {
            let mut eval = redis::cmd("EVAL");
            eval.arg(script)
                .arg(2)
                .arg(&free)
                .arg(&ours)
                .arg("node-redlock")
                .arg(PEER_TTL_S * 1000);
            counts.push(
                eval.query_async::<i64>(&mut raw(server).await)
                    .await
                    .unwrap(),
            );
        }
        counts
    };
    let guard = acquire_everywhere(&redlock, five, &ours).await;
    assert_eq!(eval(SET_ALL_IF_ALL_FREE).await, [0; 5]);
    assert_eq!(eval(SET_ALL_IF_ALL_MINE).await, [0; 5]);
    assert_eq!(eval(DELETE_WHAT_IS_MINE).await, [0; 5]);
    is_nowhere(five, &free).await;
    guard.release().await.unwrap();
    is_nowhere(five, &ours).await;
    assert_eq!(eval(SET_ALL_IF_ALL_FREE).await, [2; 5]);
    for name in [&free, &ours] {
        kept_out(redlock.try_acquire(name)).await;
    }
    assert_eq!(
        eval(SET_ALL_IF_ALL_MINE).await,
        [2; 5],
        "our attempt harmed neither"
    );
    assert_eq!(eval(DELETE_WHAT_IS_MINE).await, [2; 5]);
    is_free(redlock.try_acquire(&free)).await;
}

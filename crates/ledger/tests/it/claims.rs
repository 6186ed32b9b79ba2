//! Claims divide the work between recorders. The compare-and-set, not the claim, ensures that
//! nothing is applied twice.

use std::time::Duration;

use domain::SegmentKey;
use ledger::{Claim, LedgerError, SegmentReplay, SegmentRow};
use testkit::{Backend, eventually_some, in_time, on_both_databases, tested};

use crate::env::{
    AnyLedger, TestEnv, id, opened, order, order_id, record, row, segment, state, taken,
};

/// Does not apply to SQLite, which locks the file and not rows: other recorders wait instead.
#[tested(on_both_databases(crate::env::run))]
async fn a_claimed_segment_is_skipped_by_others(env: &TestEnv) {
    let (one, other) = (env.ledger().await, env.ledger().await);
    let item = env.create("vase", 10, 3).await;
    let [a, b, c] = [0, 1, 2].map(|number| segment(&item, number));
    let claim = one
        .claim(&[a.clone(), b.clone()], 9)
        .await
        .unwrap()
        .unwrap();
    if env.backend == Backend::Sqlite {
        let waiting =
            tokio::spawn(async move { other.claim(&[c], 9).await.unwrap().unwrap().rows().len() });
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!waiting.is_finished());
        drop(claim);
        assert_eq!(waiting.await.unwrap(), 1);
        return;
    }
    assert!(
        other
            .claim(&[b.clone(), a.clone()], 9)
            .await
            .unwrap()
            .is_none()
    );
    let rest = other
        .claim(&[a.clone(), b.clone(), c.clone()], 2)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        rest.rows().iter().map(|row| &row.key).collect::<Vec<_>>(),
        [&c],
        "claimed segments do not count towards the maximum"
    );
    drop(claim);
    eventually_some("a free segment", async || {
        other.claim(std::slice::from_ref(&a), 9).await.unwrap()
    })
    .await;
}

#[tested(on_both_databases(crate::env::run))]
async fn a_claim_takes_the_first_of_the_wanted_segments(env: &TestEnv) {
    let item = env.create("vase", 10, 5).await;
    let wanted = [3, 9, 1, 4, 0].map(|number| segment(&item, number));
    let claim = env.claim(&wanted, 2).await.unwrap().unwrap();
    assert_eq!(
        claim
            .rows()
            .iter()
            .map(|row| row.key.segment)
            .collect::<Vec<_>>(),
        [3, 1],
        "9 does not exist"
    );
    drop(claim);
    assert!(env.claim(&[], 9).await.unwrap().is_none());
    assert!(env.claim(&[segment(&item, 9)], 9).await.unwrap().is_none());
}

#[tested(on_both_databases(crate::env::run))]
async fn a_dropped_claim_changes_nothing(env: &TestEnv) {
    let item = env.create("vase", 10, 1).await;
    let key = segment(&item, 0);
    let before = row(env, &key).await;
    drop(env.claim_one(&key).await.unwrap());

    // The claim is dropped in the middle of its transaction, at many different points.
    let orders: Vec<_> = (0..500).map(|n| order(&item, n % 10, 1)).collect();
    for micros in (0..4000).step_by(200) {
        let claim = eventually_some("a claim", async || env.claim_one(&key).await).await;
        let mut entries = vec![opened(&item, 0)];
        entries.push(taken(id(2, 0), orders.clone()));
        // A replay that the last step refuses never commits, however far it gets.
        let stale = SegmentRow {
            version: 99,
            ..claim.rows()[0].clone()
        };
        let recording = claim.record(vec![SegmentReplay {
            row: stale,
            entries,
        }]);
        assert!(!matches!(
            tokio::time::timeout(Duration::from_micros(micros), recording).await,
            Ok(Ok(_))
        ));
    }
    assert_eq!(row(env, &key).await, before);
    assert_eq!(state(env, order_id(&item, 0)).await, None);
    eventually_some("a claim", async || env.claim_one(&key).await).await;
}

async fn claimed(ledger: &impl AnyLedger, key: &[SegmentKey]) -> Box<dyn Claim> {
    let claim = ledger.claim(key, 1).await.unwrap();
    claim.expect("the segment must be free")
}

#[tested(on_both_databases(crate::env::run))]
async fn a_released_segment_can_be_claimed_immediately(env: &TestEnv) {
    let (one, other) = (env.ledger().await, env.ledger().await);
    let item = env.create("vase", 10, 1).await;
    let key = [segment(&item, 0)];
    for _ in 0..100 {
        claimed(&one, &key).await.release().await;
        claimed(&other, &key).await.release().await;
    }
    // The same holds after a recording that was refused.
    for _ in 0..20 {
        let claim = claimed(&one, &key).await;
        let replay = SegmentReplay {
            row: claim.rows()[0].clone(),
            entries: vec![taken(id(2, 0), vec![])],
        };
        assert!(matches!(
            claim.record(vec![replay]).await,
            Err(LedgerError::Diverged(_))
        ));
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn a_superseded_replay_is_refused(env: &TestEnv) {
    let item = env.create("vase", 20, 2).await;
    let [key, other] = [0, 1].map(|number| segment(&item, number));
    let unopened = row(env, &key).await;
    record(
        env,
        &key,
        vec![opened(&item, 0), taken(id(2, 0), vec![order(&item, 0, 1)])],
    )
    .await;
    let current = row(env, &key).await;
    let untouched = row(env, &other).await;
    let fresh = taken(id(3, 0), vec![order(&item, 1, 1)]);
    let table = [
        (
            unopened,
            vec![opened(&item, 0), fresh.clone()],
            "the row before its last change",
        ),
        (
            SegmentRow {
                version: current.version - 1,
                ..current.clone()
            },
            vec![fresh.clone()],
            "an outdated version",
        ),
        (
            SegmentRow {
                checkpoint: Some(id(1, 0)),
                ..current.clone()
            },
            vec![fresh.clone()],
            "an outdated checkpoint",
        ),
        (
            SegmentRow {
                checkpoint: None,
                ..current.clone()
            },
            vec![opened(&item, 0), fresh],
            "no checkpoint",
        ),
    ];
    for (stale, entries, case) in table {
        let claim = env
            .claim(&[key.clone(), other.clone()], 2)
            .await
            .unwrap()
            .unwrap();
        let good = claim
            .rows()
            .iter()
            .find(|row| row.key == other)
            .unwrap()
            .clone();
        let good = SegmentReplay {
            row: good,
            entries: vec![opened(&item, 1), taken(id(2, 0), vec![order(&item, 2, 1)])],
        };
        let refused = claim
            .record(vec![
                good,
                SegmentReplay {
                    row: stale,
                    entries,
                },
            ])
            .await;
        assert!(
            matches!(&refused, Err(LedgerError::Superseded(superseded)) if *superseded == key),
            "{case}: {refused:?}"
        );
        assert_eq!(row(env, &key).await, current, "{case}");
        assert_eq!(
            row(env, &other).await,
            untouched,
            "{case}: and so for all of the batch"
        );
        assert_eq!(
            (
                state(env, order_id(&item, 1)).await,
                state(env, order_id(&item, 2)).await
            ),
            (None, None),
            "{case}"
        );
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn a_claim_delays_nothing_but_other_claims(env: &TestEnv) {
    let ledger = env.ledger().await;
    let item = env.create("vase", 10, 1).await;
    let (key, other) = (segment(&item, 0), env.ledger().await);
    let reads = async || {
        assert!(other.item(&item.id).await.unwrap().is_some());
        assert!(other.totals(&item.id).await.unwrap().is_some());
        assert_eq!(other.checkpoints().await.unwrap().len(), 1);
        assert!(ledger.order(order_id(&item, 0)).await.unwrap().is_none());
    };
    // The database ends a claim that idles. Reads that waited for the claim would end after it; on
    // a busy machine, a claim may end before reads that did not wait, but hardly each time.
    for _ in 0..3 {
        let claim = eventually_some("a claim", async || {
            ledger.claim(std::slice::from_ref(&key), 1).await.unwrap()
        })
        .await;
        in_time("every read", reads()).await;
        let replay = SegmentReplay {
            row: claim.rows()[0].clone(),
            entries: vec![opened(&item, 0)],
        };
        if claim.record(vec![replay]).await.is_ok() {
            return;
        }
    }
    panic!("no claim was left when the reads had ended");
}

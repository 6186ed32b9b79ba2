//! Fenced tables inside transactions: which statement waits for which, what a snapshot hides, and
//! what a rollback undoes.

use lock::store::{Check, Claim, StoreError, Write};
use testkit_macros::tested;

use super::env::{KEY, Row, TestEnv, applied, token};

/// The write finds the old row, waits for the transaction that holds it, and must check again.
#[tested(on_every_database)]
async fn a_write_that_has_waited_for_a_claim_is_refused(env: TestEnv) {
    let (mut first, mut second) = (env.session().await, env.session().await);
    let version = first.claimed(&env, 33).await;
    second.run(env.begin()).await;
    assert_eq!(
        second.claims(&env, 34).await,
        Claim::Claimed {
            version: version + 1
        }
    );
    let items = env.items.clone();
    let late =
        tokio::spawn(async move { first.write(&items, KEY, token(33), version, "33").await });
    env.is_blocked().await;
    second.run("COMMIT").await;
    assert_eq!(
        late.await.unwrap().unwrap(),
        Write::Superseded { current: token(34) }
    );
    assert_eq!(env.row().await, Row::of("", 34, version + 1));
}

#[tested(on_every_database)]
async fn a_claim_that_has_waited_for_a_write_sees_the_write(env: TestEnv) {
    let (mut first, mut second) = (env.session().await, env.session().await);
    let version = first.claimed(&env, 33).await;
    first.run(env.begin()).await;
    let written = first.writes(&env, 33, version, "33").await;
    assert_eq!(written, applied(version + 1));
    let items = env.items.clone();
    let next = tokio::spawn(async move {
        (
            second.claim(&items, KEY, token(34)).await,
            second.row().await,
        )
    });
    env.is_blocked().await;
    first.run("COMMIT").await;
    let (claim, seen) = next.await.unwrap();
    assert_eq!(
        claim.unwrap(),
        Claim::Claimed {
            version: version + 2
        }
    );
    assert_eq!(seen, Row::of("33", 34, version + 2));
}

#[tested(on_every_database)]
async fn a_rollback_undoes_a_claim(env: TestEnv) {
    let (mut first, mut second) = (env.session().await, env.session().await);
    let version = first.claimed(&env, 33).await;
    second.run(env.begin()).await;
    let theirs = second.claimed(&env, 34).await;
    assert_eq!(
        second.writes(&env, 34, theirs, "34").await,
        applied(theirs + 1)
    );
    second.run("ROLLBACK").await;
    assert_eq!(
        first.writes(&env, 33, version, "33").await,
        applied(version + 1)
    );
    assert_eq!(env.row().await, Row::of("33", 33, version + 1));
}

/// The transaction has read the row before the later holder claimed it, and its snapshot keeps that
/// state. The outcome must not come from the snapshot.
#[tested(on_every_database)]
async fn a_snapshot_never_hides_a_later_holder(env: TestEnv) {
    let (mut first, mut second) = (env.session().await, env.session().await);
    let version = first.claimed(&env, 33).await;
    for statement in snapshot(&env) {
        first.run(*statement).await;
    }
    assert_eq!(first.row().await.fence, 33);
    let theirs = second.claimed(&env, 34).await;
    assert_eq!(
        first.row().await.fence,
        33,
        "the transaction has no snapshot"
    );
    match first.write(&env.items, KEY, token(33), version, "33").await {
        Ok(outcome) => {
            assert_eq!(outcome, Write::Superseded { current: token(34) });
            assert_eq!(
                first.claims(&env, 33).await,
                Claim::Superseded { current: token(34) }
            );
            assert_eq!(
                first.checks(&env, 33).await,
                Check::Superseded { current: token(34) }
            );
        }
        // The database does not let this transaction write at all.
        Err(error) => {
            assert!(
                matches!(error, StoreError::Database(_)) && error.is_retryable(),
                "{error:?}"
            );
        }
    }
    first.run("ROLLBACK").await;
    assert_eq!(env.row().await, Row::of("", 34, theirs));
}

/// A transaction can therefore change other rows on behalf of a holder.
#[tested(on_every_database)]
async fn a_check_stays_true_until_the_transaction_ends(env: TestEnv) {
    let (mut first, mut second) = (env.session().await, env.session().await);
    let version = first.claimed(&env, 33).await;
    first.run("BEGIN").await;
    assert_eq!(first.checks(&env, 33).await, Check::Current);
    let items = env.items.clone();
    let next = tokio::spawn(async move { second.claim(&items, KEY, token(34)).await });
    let other = "UPDATE items SET value = '33 was here' WHERE id = 2";
    if env.url.starts_with("sqlite") {
        // A reader blocks no writer, and a transaction with an outdated read cannot write.
        assert_eq!(
            next.await.unwrap().unwrap(),
            Claim::Claimed {
                version: version + 1
            }
        );
        first.try_run(other.into()).await.unwrap_err();
        first.run("ROLLBACK").await;
        return;
    }
    env.is_blocked().await;
    first.run(other).await;
    assert_eq!(first.checks(&env, 33).await, Check::Current);
    first.run("COMMIT").await;
    assert_eq!(
        next.await.unwrap().unwrap(),
        Claim::Claimed {
            version: version + 1
        }
    );
    assert_eq!(
        first
            .text("SELECT value FROM items WHERE id = 2".into())
            .await,
        "33 was here"
    );
}

fn snapshot(env: &TestEnv) -> &'static [&'static str] {
    if env.url.starts_with("mysql") {
        &[
            "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            "BEGIN",
        ]
    } else if env.url.starts_with("postgres") {
        &["BEGIN ISOLATION LEVEL REPEATABLE READ"]
    } else {
        &["BEGIN"]
    }
}

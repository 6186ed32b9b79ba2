//! Fenced tables inside transactions: which statement waits for which, what a snapshot hides, and
//! what a rollback undoes.

use lock::store::{Check, Claim, StoreError, Write};
use testkit_macros::tested;

use super::env::{KEY, Row, TestEnv, token};

/// The write finds the old row, waits for the transaction that holds it, and must check again.
#[tested(on_every_database)]
async fn a_write_that_has_waited_for_a_claim_is_refused(env: TestEnv) {
    let (mut first, mut second) = (env.session().await, env.session().await);
    let Claim::Claimed { version } = first.claim(&env.items, KEY, token(33)).await.unwrap() else {
        panic!()
    };
    second.run(env.begin()).await;
    assert_eq!(
        second.claim(&env.items, KEY, token(34)).await.unwrap(),
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
    assert_eq!(
        env.row().await,
        Row {
            value: String::new(),
            fence: 34,
            version: version + 1
        }
    );
}

#[tested(on_every_database)]
async fn a_claim_that_has_waited_for_a_write_sees_the_write(env: TestEnv) {
    let (mut first, mut second) = (env.session().await, env.session().await);
    let Claim::Claimed { version } = first.claim(&env.items, KEY, token(33)).await.unwrap() else {
        panic!()
    };
    first.run(env.begin()).await;
    let written = first
        .write(&env.items, KEY, token(33), version, "33")
        .await
        .unwrap();
    assert_eq!(
        written,
        Write::Applied {
            version: version + 1
        }
    );
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
    assert_eq!(
        seen,
        Row {
            value: "33".into(),
            fence: 34,
            version: version + 2
        }
    );
}

#[tested(on_every_database)]
async fn a_rollback_undoes_a_claim(env: TestEnv) {
    let (mut first, mut second) = (env.session().await, env.session().await);
    let Claim::Claimed { version } = first.claim(&env.items, KEY, token(33)).await.unwrap() else {
        panic!()
    };
    second.run(env.begin()).await;
    let Claim::Claimed { version: theirs } =
        second.claim(&env.items, KEY, token(34)).await.unwrap()
    else {
        panic!()
    };
    assert_eq!(
        second
            .write(&env.items, KEY, token(34), theirs, "34")
            .await
            .unwrap(),
        Write::Applied {
            version: theirs + 1
        }
    );
    second.run("ROLLBACK").await;
    assert_eq!(
        first
            .write(&env.items, KEY, token(33), version, "33")
            .await
            .unwrap(),
        Write::Applied {
            version: version + 1
        }
    );
    assert_eq!(
        env.row().await,
        Row {
            value: "33".into(),
            fence: 33,
            version: version + 1
        }
    );
}

/// The transaction has read the row before the later holder claimed it, and its snapshot keeps that
/// state. The outcome must not come from the snapshot.
#[tested(on_every_database)]
async fn a_snapshot_never_hides_a_later_holder(env: TestEnv) {
    let (mut first, mut second) = (env.session().await, env.session().await);
    let Claim::Claimed { version } = first.claim(&env.items, KEY, token(33)).await.unwrap() else {
        panic!()
    };
    for statement in snapshot(&env) {
        first.run(*statement).await;
    }
    assert_eq!(first.row().await.fence, 33);
    let Claim::Claimed { version: theirs } =
        second.claim(&env.items, KEY, token(34)).await.unwrap()
    else {
        panic!()
    };
    assert_eq!(
        first.row().await.fence,
        33,
        "the transaction has no snapshot"
    );
    match first.write(&env.items, KEY, token(33), version, "33").await {
        Ok(outcome) => {
            assert_eq!(outcome, Write::Superseded { current: token(34) });
            assert_eq!(
                first.claim(&env.items, KEY, token(33)).await.unwrap(),
                Claim::Superseded { current: token(34) }
            );
            assert_eq!(
                first.check(&env.items, KEY, token(33)).await.unwrap(),
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
    assert_eq!(
        env.row().await,
        Row {
            value: String::new(),
            fence: 34,
            version: theirs
        }
    );
}

/// A transaction can therefore change other rows on behalf of a holder.
#[tested(on_every_database)]
async fn a_check_stays_true_until_the_transaction_ends(env: TestEnv) {
    let (mut first, mut second) = (env.session().await, env.session().await);
    let Claim::Claimed { version } = first.claim(&env.items, KEY, token(33)).await.unwrap() else {
        panic!()
    };
    first.run("BEGIN").await;
    assert_eq!(
        first.check(&env.items, KEY, token(33)).await.unwrap(),
        Check::Current
    );
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
    assert_eq!(
        first.check(&env.items, KEY, token(33)).await.unwrap(),
        Check::Current
    );
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

//! The kit inside transactions: who waits for whom, what a snapshot hides, and what is taken back.

use lock::store::{Check, Claim, StoreError, Write};

use super::site::{KEY, Row, Site, token};

on_every_database!(
    a_write_that_has_waited_for_a_claim_is_refused,
    a_claim_that_has_waited_for_a_write_sees_it,
    a_claim_that_is_taken_back_was_never_made,
    a_snapshot_never_denies_a_successor,
    what_was_checked_stays_until_the_transaction_ends,
);

/// The write finds the row as it was, waits for the transaction that has it, and must look again.
async fn a_write_that_has_waited_for_a_claim_is_refused(site: Site) {
    let (mut first, mut second) = (site.session().await, site.session().await);
    let Claim::Claimed { version } = first.claim(&site.items, KEY, token(33)).await.unwrap() else {
        panic!()
    };
    second.run(site.begin()).await;
    assert_eq!(
        second.claim(&site.items, KEY, token(34)).await.unwrap(),
        Claim::Claimed {
            version: version + 1
        }
    );
    let items = site.items.clone();
    let late =
        tokio::spawn(async move { first.write(&items, KEY, token(33), version, "33").await });
    site.is_blocked().await;
    second.run("COMMIT").await;
    assert_eq!(
        late.await.unwrap().unwrap(),
        Write::Superseded { current: token(34) }
    );
    assert_eq!(
        site.row().await,
        Row {
            value: String::new(),
            fence: 34,
            version: version + 1
        }
    );
}

async fn a_claim_that_has_waited_for_a_write_sees_it(site: Site) {
    let (mut first, mut second) = (site.session().await, site.session().await);
    let Claim::Claimed { version } = first.claim(&site.items, KEY, token(33)).await.unwrap() else {
        panic!()
    };
    first.run(site.begin()).await;
    let written = first
        .write(&site.items, KEY, token(33), version, "33")
        .await
        .unwrap();
    assert_eq!(
        written,
        Write::Applied {
            version: version + 1
        }
    );
    let items = site.items.clone();
    let next = tokio::spawn(async move {
        (
            second.claim(&items, KEY, token(34)).await,
            second.row().await,
        )
    });
    site.is_blocked().await;
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

async fn a_claim_that_is_taken_back_was_never_made(site: Site) {
    let (mut first, mut second) = (site.session().await, site.session().await);
    let Claim::Claimed { version } = first.claim(&site.items, KEY, token(33)).await.unwrap() else {
        panic!()
    };
    second.run(site.begin()).await;
    let Claim::Claimed { version: theirs } =
        second.claim(&site.items, KEY, token(34)).await.unwrap()
    else {
        panic!()
    };
    assert_eq!(
        second
            .write(&site.items, KEY, token(34), theirs, "34")
            .await
            .unwrap(),
        Write::Applied {
            version: theirs + 1
        }
    );
    second.run("ROLLBACK").await;
    assert_eq!(
        first
            .write(&site.items, KEY, token(33), version, "33")
            .await
            .unwrap(),
        Write::Applied {
            version: version + 1
        }
    );
    assert_eq!(
        site.row().await,
        Row {
            value: "33".into(),
            fence: 33,
            version: version + 1
        }
    );
}

/// The transaction has seen the row before its successor came, and sees it so to its end. What the kit says must not come from there.
async fn a_snapshot_never_denies_a_successor(site: Site) {
    let (mut first, mut second) = (site.session().await, site.session().await);
    let Claim::Claimed { version } = first.claim(&site.items, KEY, token(33)).await.unwrap() else {
        panic!()
    };
    for statement in snapshot(&site) {
        first.run(*statement).await;
    }
    assert_eq!(first.row().await.fence, 33);
    let Claim::Claimed { version: theirs } =
        second.claim(&site.items, KEY, token(34)).await.unwrap()
    else {
        panic!()
    };
    assert_eq!(
        first.row().await.fence,
        33,
        "the transaction has no snapshot"
    );
    match first
        .write(&site.items, KEY, token(33), version, "33")
        .await
    {
        Ok(outcome) => {
            assert_eq!(outcome, Write::Superseded { current: token(34) });
            assert_eq!(
                first.claim(&site.items, KEY, token(33)).await.unwrap(),
                Claim::Superseded { current: token(34) }
            );
            assert_eq!(
                first.check(&site.items, KEY, token(33)).await.unwrap(),
                Check::Superseded { current: token(34) }
            );
        }
        // The database will not let this transaction write at all.
        Err(error) => {
            assert!(
                matches!(error, StoreError::Database(_)) && error.is_retryable(),
                "{error:?}"
            );
        }
    }
    first.run("ROLLBACK").await;
    assert_eq!(
        site.row().await,
        Row {
            value: String::new(),
            fence: 34,
            version: theirs
        }
    );
}

/// So a transaction can change other rows in the name of a holder.
async fn what_was_checked_stays_until_the_transaction_ends(site: Site) {
    let (mut first, mut second) = (site.session().await, site.session().await);
    let Claim::Claimed { version } = first.claim(&site.items, KEY, token(33)).await.unwrap() else {
        panic!()
    };
    first.run("BEGIN").await;
    assert_eq!(
        first.check(&site.items, KEY, token(33)).await.unwrap(),
        Check::Current
    );
    let items = site.items.clone();
    let next = tokio::spawn(async move { second.claim(&items, KEY, token(34)).await });
    let other = "UPDATE items SET value = '33 was here' WHERE id = 2";
    if site.url.starts_with("sqlite") {
        // Nobody waits for who only reads; who has read what is no longer so cannot write.
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
    site.is_blocked().await;
    first.run(other).await;
    assert_eq!(
        first.check(&site.items, KEY, token(33)).await.unwrap(),
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

fn snapshot(site: &Site) -> &'static [&'static str] {
    if site.url.starts_with("mysql") {
        &[
            "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            "BEGIN",
        ]
    } else if site.url.starts_with("postgres") {
        &["BEGIN ISOLATION LEVEL REPEATABLE READ"]
    } else {
        &["BEGIN"]
    }
}

//! Arguments that are refused before anything is sent.

use std::time::Duration;

use lock::{InvalidArgument, Lock, LockError, RedlockBuilder};

use crate::support::{five, ms, redlock};

/// No server listens there, and no test connects to it.
const NO_SERVER: &str = "redis://user:secret@127.0.0.1:1";

async fn refused(builder: RedlockBuilder) -> InvalidArgument {
    builder
        .build()
        .await
        .map(drop)
        .expect_err("the builder must refuse these settings")
}

fn setting(error: &InvalidArgument) -> &str {
    match error {
        InvalidArgument::Duration { setting, .. } => setting,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_duration_out_of_range_is_refused_with_the_name_of_its_setting() {
    let one = || RedlockBuilder::new([NO_SERVER]);
    let year = Duration::from_secs(365 * 24 * 60 * 60);
    let table = [
        (one().lease(Duration::ZERO), "lease"),
        (one().lease(ms(1)), "lease"),
        (one().lease(year), "lease"),
        (one().lease(Duration::MAX), "lease"),
        (one().lock_delay(Duration::MAX), "lock_delay"),
        (one().longest_lease(ms(1)), "longest_lease"),
        (one().min_validity(Duration::from_secs(10)), "min_validity"),
        (one().min_validity(Duration::MAX / 2), "min_validity"),
        (one().node_timeout(Duration::ZERO), "node_timeout"),
        (one().node_timeout(Duration::from_secs(10)), "node_timeout"),
        (one().retry(Duration::ZERO), "retry"),
        (one().keep_tokens(ms(1)), "keep_tokens"),
    ];
    for (builder, name) in table {
        assert_eq!(setting(&refused(builder).await), name);
    }
}

#[tokio::test]
async fn a_node_must_not_be_listed_twice() {
    assert!(matches!(
        refused(RedlockBuilder::new(Vec::<String>::new())).await,
        InvalidArgument::Nodes(_)
    ));
    assert!(matches!(
        refused(RedlockBuilder::new([NO_SERVER, "redis://127.0.0.1:1/2"])).await,
        InvalidArgument::Nodes(_)
    ));
    let error = refused(RedlockBuilder::new(["http://user:secret@host"]))
        .await
        .to_string();
    assert!(
        error.contains("http://***@host") && !error.contains("secret"),
        "{error}"
    );
}

#[tokio::test]
async fn empty_long_and_reserved_names_are_refused() {
    let redlock = redlock(five().await).await;
    for name in [
        String::new(),
        "x".repeat(10_000),
        "item:fence".into(),
        "lock:node:generation".into(),
    ] {
        let error = redlock.acquire(&name).await.unwrap_err();
        assert!(
            matches!(error, LockError::Invalid(_)) && !error.is_retryable(),
            "{error}"
        );
    }
    let guard = redlock
        .acquire("a name with spaces\nand a line break")
        .await
        .unwrap();
    guard.release().await.unwrap();
}

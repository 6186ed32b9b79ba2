//! Many concurrent writers, each on its own connection.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use lock::store::{Claim, Write};
use testkit_macros::tested;
use tokio::{sync::Barrier, task::JoinSet};

use super::env::{KEY, Session, TestEnv, applied, conflict, token};

const WRITERS: usize = 8;
const ROUNDS: usize = 12;

/// The writers do not wait for each other: each takes the next token while others still write, as
/// if every lock had ended too early.
#[tested(on_every_database)]
async fn with_rising_tokens_one_writer_wins_each_version(env: TestEnv) {
    let last = Arc::new(AtomicI64::new(0));
    let applied = run_concurrently(env, move |env, mut session| {
        let last = Arc::clone(&last);
        async move {
            let mut applied = Vec::new();
            for _ in 0..ROUNDS {
                let number = last.fetch_add(1, Ordering::SeqCst) + 1;
                if let Some(version) = append(&env, &mut *session, number).await {
                    applied.push((version, number));
                }
            }
            applied
        }
    });
    let (env, applied) = applied.await;
    let in_order: BTreeSet<(i64, i64)> = applied.iter().flatten().copied().collect();
    let versions: BTreeSet<i64> = in_order.iter().map(|(version, _)| *version).collect();
    assert_eq!(
        versions.len(),
        applied.iter().flatten().count(),
        "a version was won twice: {applied:?}"
    );
    let tokens: Vec<i64> = in_order.iter().map(|(_, number)| *number).collect();
    assert!(
        tokens.is_sorted_by(|earlier, later| earlier < later),
        "a zombie wrote: {tokens:?}"
    );
    assert!(!tokens.is_empty());
    let value: String = tokens.iter().map(|number| format!(" {number}")).collect();
    assert_eq!(
        env.row().await.value,
        value,
        "the row contains exactly the applied writes, in order"
    );
}

#[tested(on_every_database)]
async fn of_writes_with_the_same_token_and_version_one_is_applied(env: TestEnv) {
    let Claim::Claimed { version } = env.session().await.claims(&env, 33).await else {
        panic!()
    };
    let (env, outcomes) = run_concurrently(env, move |env, mut session| async move {
        session.writes(&env, 33, version, "x").await
    })
    .await;
    let count = |outcome| outcomes.iter().filter(|found| **found == outcome).count();
    assert_eq!(count(applied(version + 1)), 1, "{outcomes:?}");
    assert_eq!(count(conflict(version + 1)), WRITERS - 1, "{outcomes:?}");
    assert_eq!(env.row().await.version, version + 1);
}

/// The worst fault of a lock: every contender holds it, with the same token.
#[tested(on_every_database)]
async fn writers_with_the_same_token_lose_no_update(env: TestEnv) {
    let (env, applied) = run_concurrently(env, |env, mut session| async move {
        let mut applied = 0;
        for _ in 0..ROUNDS {
            applied += usize::from(append(&env, &mut *session, 7).await.is_some());
        }
        applied
    })
    .await;
    let applied: usize = applied.iter().sum();
    assert!(applied > 0);
    assert_eq!(env.row().await.value, " 7".repeat(applied));
}

/// Claims, reads, and writes the value back with the number appended. Returns the new version if
/// the write was applied.
async fn append(env: &TestEnv, session: &mut dyn Session, number: i64) -> Option<i64> {
    let claim = claim(env, session, number).await;
    let Claim::Claimed { version } = claim else {
        return None;
    };
    let value = format!("{} {number}", session.row().await.value);
    match session
        .write(&env.items, KEY, token(number), version, &value)
        .await
    {
        Ok(Write::Applied { version }) => Some(version),
        Ok(Write::Superseded { .. } | Write::Conflict { .. }) => None,
        other => panic!("{other:?}"),
    }
}

/// MySQL may abort one of several transactions that want the same row.
async fn claim(env: &TestEnv, session: &mut dyn Session, number: i64) -> Claim {
    loop {
        match session.claim(&env.items, KEY, token(number)).await {
            Err(error) if error.is_retryable() => {}
            other => return other.unwrap(),
        }
    }
}

async fn run_concurrently<T, F>(
    env: TestEnv,
    writer: impl Fn(Arc<TestEnv>, Box<dyn Session>) -> F,
) -> (Arc<TestEnv>, Vec<T>)
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let (env, barrier) = (Arc::new(env), Arc::new(Barrier::new(WRITERS)));
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        let (barrier, work) = (
            Arc::clone(&barrier),
            writer(Arc::clone(&env), env.session().await),
        );
        writers.spawn(async move {
            barrier.wait().await;
            work.await
        });
    }
    (env, writers.join_all().await)
}

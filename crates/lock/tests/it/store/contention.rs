//! Many at once, each on a connection of its own.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use lock::store::{Claim, Write};
use tokio::{sync::Barrier, task::JoinSet};

use super::site::{KEY, Session, Site, token};

const WRITERS: usize = 8;
const ROUNDS: usize = 12;

on_every_database!(
    of_writers_with_rising_tokens_one_wins_each_version,
    of_writes_with_the_same_token_and_version_one_is_applied,
    writers_with_the_same_token_lose_no_update,
);

/// Nobody waits for anybody: a token is taken, and the next may be taken at once, as if every lock had ended too early.
async fn of_writers_with_rising_tokens_one_wins_each_version(site: Site) {
    let last = Arc::new(AtomicI64::new(0));
    let applied = all_at_once(site, move |site, mut session| {
        let last = Arc::clone(&last);
        async move {
            let mut applied = Vec::new();
            for _ in 0..ROUNDS {
                let number = last.fetch_add(1, Ordering::SeqCst) + 1;
                if let Some(version) = append(&site, &mut *session, number).await {
                    applied.push((version, number));
                }
            }
            applied
        }
    });
    let (site, applied) = applied.await;
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
        site.row().await.value,
        value,
        "the row has every write that was applied, in order, and no other"
    );
}

async fn of_writes_with_the_same_token_and_version_one_is_applied(site: Site) {
    let Claim::Claimed { version } = site
        .session()
        .await
        .claim(&site.items, KEY, token(33))
        .await
        .unwrap()
    else {
        panic!()
    };
    let (site, outcomes) = all_at_once(site, move |site, mut session| async move {
        session
            .write(&site.items, KEY, token(33), version, "x")
            .await
            .unwrap()
    })
    .await;
    let count = |outcome| outcomes.iter().filter(|found| **found == outcome).count();
    assert_eq!(
        count(Write::Applied {
            version: version + 1
        }),
        1,
        "{outcomes:?}"
    );
    assert_eq!(
        count(Write::Conflict {
            version: version + 1
        }),
        WRITERS - 1,
        "{outcomes:?}"
    );
    assert_eq!(site.row().await.version, version + 1);
}

/// The worst that a lock can do: everybody has it, with one token.
async fn writers_with_the_same_token_lose_no_update(site: Site) {
    let (site, applied) = all_at_once(site, |site, mut session| async move {
        let mut applied = 0;
        for _ in 0..ROUNDS {
            applied += usize::from(append(&site, &mut *session, 7).await.is_some());
        }
        applied
    })
    .await;
    let applied: usize = applied.iter().sum();
    assert!(applied > 0);
    assert_eq!(site.row().await.value, " 7".repeat(applied));
}

/// Claims, reads, writes back with the own number. Says which version that made, if it came to that.
async fn append(site: &Site, session: &mut dyn Session, number: i64) -> Option<i64> {
    let claim = claim(site, session, number).await;
    let Claim::Claimed { version } = claim else {
        return None;
    };
    let value = format!("{} {number}", session.row().await.value);
    match session
        .write(&site.items, KEY, token(number), version, &value)
        .await
    {
        Ok(Write::Applied { version }) => Some(version),
        Ok(Write::Superseded { .. } | Write::Conflict { .. }) => None,
        other => panic!("{other:?}"),
    }
}

/// MySQL may call off one of several that want a row.
async fn claim(site: &Site, session: &mut dyn Session, number: i64) -> Claim {
    loop {
        match session.claim(&site.items, KEY, token(number)).await {
            Err(error) if error.is_retryable() => {}
            other => return other.unwrap(),
        }
    }
}

async fn all_at_once<T, F>(
    site: Site,
    writer: impl Fn(Arc<Site>, Box<dyn Session>) -> F,
) -> (Arc<Site>, Vec<T>)
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let (site, barrier) = (Arc::new(site), Arc::new(Barrier::new(WRITERS)));
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        let (barrier, work) = (
            Arc::clone(&barrier),
            writer(Arc::clone(&site), site.session().await),
        );
        writers.spawn(async move {
            barrier.wait().await;
            work.await
        });
    }
    (site, writers.join_all().await)
}

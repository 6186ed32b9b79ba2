//! What anyone may see of an item, kept for a moment.
//!
//! It is the page that a crowd reloads, and reading it costs two statements of SQL and one script for
//! each segment. Concurrent requests for an item share one read. An item that does not exist is kept
//! as well.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use domain::ItemId;
use moka::future::Cache;

use super::Problem;

/// How old a view may be.
const LIFETIME: Duration = Duration::from_millis(250);
/// Items that are kept. Views are some 500 bytes.
const ITEMS_MAX: u64 = 10_000;

/// Serialized views. `None`: there is no such item.
pub(crate) struct PublicViews(Cache<ItemId, Option<Bytes>>);

impl Default for PublicViews {
    fn default() -> Self {
        let cache = Cache::builder()
            .max_capacity(ITEMS_MAX)
            .time_to_live(LIFETIME);
        Self(cache.build())
    }
}

impl PublicViews {
    /// The view of the item, read by `read` unless it is known. A failed read is not kept.
    pub(crate) async fn get(
        &self,
        id: ItemId,
        read: impl Future<Output = Result<Option<Bytes>, Problem>>,
    ) -> Result<Option<Bytes>, Problem> {
        self.0
            .try_get_with(id, read)
            .await
            .map_err(|problem: Arc<Problem>| Problem::clone(&problem))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::{Duration, Instant},
    };

    use bytes::Bytes;
    use domain::ItemId;
    use futures::future::join_all;

    use super::{LIFETIME, Problem, PublicViews};

    #[tokio::test]
    async fn concurrent_requests_share_one_read_and_a_failed_one_is_not_kept() {
        let (views, reads) = (PublicViews::default(), AtomicUsize::new(0));
        let get = |result: Result<Option<Bytes>, Problem>| {
            let read = async {
                reads.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(20)).await;
                result
            };
            views.get(ItemId::new("vase").unwrap(), read)
        };
        assert!(get(Err(Problem::unavailable())).await.is_err());
        let views = join_all((0..50).map(|_| get(Ok(Some("vase".into()))))).await;
        assert!(
            views
                .into_iter()
                .all(|view| view.unwrap() == Some("vase".into()))
        );
        assert_eq!(reads.load(Ordering::SeqCst), 2);
        loop {
            tokio::time::sleep(LIFETIME * 2).await;
            let (began, before) = (Instant::now(), reads.load(Ordering::SeqCst));
            assert_eq!(get(Ok(None)).await.unwrap(), None);
            let again = get(Ok(Some("jar".into()))).await.unwrap();
            // A busy machine may not ask twice in the lifetime of a view.
            if began.elapsed() < LIFETIME {
                assert_eq!((again, reads.load(Ordering::SeqCst)), (None, before + 1));
                return;
            }
        }
    }
}

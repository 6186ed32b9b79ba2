//! What anyone may see of an item, kept for a moment.
//!
//! It is the page that a crowd reloads, and reading it costs two statements of SQL and one script
//! for each segment. Concurrent requests for an item share one read. An item that does not exist is
//! kept as well.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use domain::ItemId;
use futures::future::{FutureExt, join_all};
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

    /// How many of these items have to be read.
    pub(crate) fn unread(&self, ids: &[ItemId]) -> usize {
        ids.iter().filter(|id| !self.0.contains_key(*id)).count()
    }

    /// The views of these items, in this order. `read` reads together those that are not known, and
    /// only if no other request reads all of them at this moment. It leaves out items that do not exist.
    pub(crate) async fn get_all<R>(
        &self,
        ids: Vec<ItemId>,
        read: impl FnOnce(Vec<ItemId>) -> R,
    ) -> Vec<Result<Option<Bytes>, Problem>>
    where
        R: Future<Output = Result<Read, Problem>>,
    {
        let mut views = HashMap::with_capacity(ids.len());
        let mut missing = Vec::new();
        for id in &ids {
            match self.0.get(id).await {
                Some(view) => drop(views.insert(id.clone(), Ok(view))),
                None => missing.push(id.clone()),
            }
        }
        let together = read(missing.clone()).map(Arc::new).shared();
        let reads = missing.into_iter().map(|id| {
            let (name, together) = (id.clone(), together.clone());
            let read = async move {
                match &*together.await {
                    Ok(read) => read.get(&name).cloned().unwrap_or(Ok(None)),
                    Err(problem) => Err(problem.clone()),
                }
            };
            async move { (id.clone(), self.get(id, read).await) }
        });
        views.extend(join_all(reads).await);
        let view = |id| views.remove(&id).unwrap_or(Ok(None));
        ids.into_iter().map(view).collect()
    }
}

/// What came of the read of each item that exists.
pub(crate) type Read = HashMap<ItemId, Result<Option<Bytes>, Problem>>;

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Mutex,
            atomic::{AtomicUsize, Ordering},
        },
        time::{Duration, Instant},
    };

    use bytes::Bytes;
    use domain::ItemId;
    use futures::future::join_all;

    use super::{LIFETIME, Problem, PublicViews};

    #[tokio::test]
    async fn several_views_are_read_together_and_only_those_that_are_not_known() {
        let (views, reads) = (PublicViews::default(), Mutex::new(Vec::new()));
        let (id, reads) = (|name| ItemId::new(name).unwrap(), &reads);
        let view = |id: ItemId| match id.as_str() {
            "jar" => Some((id, Err(Problem::unavailable()))),
            "none" => None,
            name => Some((id.clone(), Ok(Some(Bytes::from(name.to_owned()))))),
        };
        let read = |missing: Vec<ItemId>| async move {
            reads.lock().unwrap().push(missing.clone());
            tokio::task::yield_now().await;
            Ok(missing.into_iter().filter_map(view).collect())
        };
        let names = || ["vase", "none", "jar"].map(id).to_vec();
        assert_eq!(views.unread(&names()), 3);
        for _ in 0..2 {
            let found = views.get_all(names(), read).await.into_iter();
            let found: Vec<_> = found.map(Result::ok).collect();
            assert_eq!(found, [Some(Some("vase".into())), Some(None), None]);
        }
        // What has failed is not kept.
        assert_eq!(*reads.lock().unwrap(), [names(), vec![id("jar")]]);
    }

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

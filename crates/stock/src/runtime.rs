//! The runtime that the connections to Redis belong to.
//!
//! A caller may run on another one: the order service has a runtime for each thread that serves
//! HTTP connections, and those end earlier. A connection is driven by the runtime in whose context
//! it was opened, so what may open one is polled in the context of this runtime, whatever thread
//! polls it.

use std::{future::poll_fn, pin::pin};

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

/// The runtime, and the tasks that [`crate::Stock::shutdown`] waits for.
#[derive(Debug, Clone)]
pub(crate) struct HomeRuntime {
    handle: Handle,
    tasks: TaskTracker,
}

impl HomeRuntime {
    /// The runtime of the caller, who is opening connections.
    pub(crate) fn current() -> Self {
        let (handle, tasks) = (Handle::current(), TaskTracker::new());
        Self { handle, tasks }
    }

    /// Runs a task that a shutdown waits for.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn_on(task, &self.handle);
    }

    /// Runs a task that nothing waits for.
    pub(crate) fn spawn_detached(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }

    /// Waits until every task has ended.
    pub(crate) async fn finish(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Polls `work` in the context of the runtime, on the caller's thread.
    pub(crate) async fn host<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            let _entered = self.handle.enter();
            work.as_mut().poll(context)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, Handle};

    use super::HomeRuntime;

    #[test]
    fn work_belongs_to_the_home_runtime_whichever_runtime_polls_it() {
        let runtime = || {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(1).build().unwrap()
        };
        let (home, other) = (runtime(), runtime());
        let hosted = home.block_on(async { HomeRuntime::current() });
        let seen = other.block_on(hosted.host(async {
            tokio::task::yield_now().await;
            let spawned = tokio::spawn(async { Handle::current().id() });
            (Handle::current().id(), spawned.await.unwrap())
        }));
        assert_eq!(seen, (home.handle().id(), home.handle().id()));
    }
}

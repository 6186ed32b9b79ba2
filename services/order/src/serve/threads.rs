//! Threads that serve connections, each with a runtime of its own.
//!
//! A connection stays on one thread for its whole life. Its tasks are woken there without a lock,
//! no other thread steals them, and what it needs is in that core's cache. What waits for a store
//! or computes for long is answered elsewhere (`apart.rs`), so it never holds up a thread.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use stock::ReplyThread;
use tokio::{
    net::TcpStream,
    runtime::{Builder, Handle},
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

/// The threads. Dropping it ends them, and the connections that they still have.
#[derive(Default)]
pub(super) struct Threads {
    threads: Vec<Thread>,
    _end: Option<DropGuard>,
}

struct Thread {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
}

impl Threads {
    /// Starts so many threads. With none of them, the caller's runtime serves the connections.
    pub(super) fn start(count: usize) -> io::Result<Self> {
        let end = CancellationToken::new();
        let started = |number| Thread::start(number, end.clone());
        let threads = (0..count).map(started).collect::<io::Result<_>>()?;
        let _end = Some(end.drop_guard());
        Ok(Self { threads, _end })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Serves the connection on the thread that has the fewest.
    pub(super) fn serve<F>(
        &self,
        stream: TcpStream,
        tasks: &TaskTracker,
        serve: impl FnOnce(TcpStream) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let least = |thread: &&Thread| thread.connections.load(Ordering::Relaxed);
        let Some(thread) = self.threads.iter().min_by_key(least) else {
            tasks.spawn(serve(stream));
            return;
        };
        // The stream leaves the runtime that accepted it, and joins that of the thread.
        let stream = match stream.into_std() {
            Ok(stream) => stream,
            Err(error) => return tracing::debug!(%error, "could not hand over a connection"),
        };
        let counted = Counted::new(&thread.connections);
        let serving = async move {
            let _counted = counted;
            match TcpStream::from_std(stream) {
                Ok(stream) => serve(stream).await,
                Err(error) => tracing::debug!(%error, "could not take over a connection"),
            }
        };
        tasks.spawn_on(serving, &thread.runtime);
    }
}

impl Thread {
    fn start(number: usize, end: CancellationToken) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        std::thread::Builder::new()
            .name(format!("connections-{number}"))
            .spawn(move || {
                let _replies = ReplyThread::begin(runtime.handle());
                runtime.block_on(end.cancelled());
            })?;
        Ok(Self {
            runtime: handle,
            connections: Arc::default(),
        })
    }
}

/// A connection of a thread, as long as it lives.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(connections: &Arc<AtomicUsize>) -> Self {
        connections.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(connections))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::Ordering, thread};

    use testkit::eventually;
    use tokio::{
        net::{TcpListener, TcpStream},
        sync::oneshot,
    };
    use tokio_util::task::TaskTracker;

    use super::Threads;

    type Name = Option<String>;

    /// Serves a connection until the client closes it. Returns the name of the thread that does so.
    async fn connect(threads: &Threads, tasks: &TaskTracker) -> (Name, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        let (sender, name) = oneshot::channel();
        threads.serve(
            accepted.unwrap().0,
            tasks,
            async move |stream: TcpStream| {
                let name = thread::current().name().map(str::to_owned);
                sender.send(name).unwrap();
                let _ = stream.readable().await;
            },
        );
        (name.await.unwrap(), client.unwrap())
    }

    async fn until_open(threads: &Threads, count: usize) {
        let open = || -> usize {
            let all = threads.threads.iter();
            all.map(|thread| thread.connections.load(Ordering::Relaxed))
                .sum()
        };
        eventually(
            "the count of connections without those that were closed",
            async || open() == count,
        )
        .await;
    }

    #[tokio::test]
    async fn connections_are_spread_evenly_also_after_some_have_closed() {
        let (threads, tasks) = (Threads::start(2).unwrap(), TaskTracker::new());
        let mut open = Vec::new();
        for _ in 0..6 {
            open.push(connect(&threads, &tasks).await);
        }
        let first = open[0].0.clone();
        assert_ne!(first.as_deref(), thread::current().name());
        let of_first = |open: &[(Name, _)]| open.iter().filter(|(name, _)| *name == first).count();
        assert_eq!(of_first(&open), 3);
        open.retain(|(name, _)| *name != first);
        until_open(&threads, 3).await;
        for _ in 0..3 {
            open.push(connect(&threads, &tasks).await);
        }
        assert_eq!(of_first(&open), 3);
    }

    #[tokio::test]
    async fn without_threads_the_callers_runtime_serves() {
        let (threads, tasks) = (Threads::start(0).unwrap(), TaskTracker::new());
        assert!(threads.is_empty());
        let (name, _client) = connect(&threads, &tasks).await;
        assert_eq!(name.as_deref(), thread::current().name());
    }

    #[tokio::test]
    async fn threads_that_end_close_their_connections() {
        let (threads, tasks) = (Threads::start(1).unwrap(), TaskTracker::new());
        let (_, client) = connect(&threads, &tasks).await;
        drop(threads);
        client.readable().await.unwrap();
        assert_eq!(client.try_read(&mut [0]).unwrap(), 0);
    }
}

//! The open connections of a listener. There is an upper bound, and at the bound the connection that
//! has been silent for longest makes room.
//!
//! A client that opens connections and sends nothing would otherwise use up the descriptors of the
//! process, which are those of Redis and the ledger too. Refusing new connections would not help: the
//! silent ones would keep all others out. A connection without a single request goes first.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use tokio::sync::Notify;

/// Value of [`Connection::silent_since_ms`] while a request is under way.
const BUSY: u64 = u64::MAX;

/// Upper bounds of open connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Connections of all peers.
    pub total: usize,
    /// Connections of one peer.
    pub per_peer: usize,
}

/// The open connections.
pub(super) struct Connections {
    bounds: Bounds,
    began: Instant,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next: u64,
    connections: HashMap<u64, Arc<Connection>>,
    per_peer: HashMap<IpAddr, usize>,
}

/// One connection, as it is shared by its task and the table.
pub(super) struct Connection {
    peer: IpAddr,
    /// Milliseconds after the listener began, or [`BUSY`].
    silent_since_ms: AtomicU64,
    has_served: AtomicBool,
    close: Notify,
}

/// A connection in the table. Dropping it removes the connection.
pub(super) struct Admitted {
    table: Arc<Connections>,
    number: u64,
    pub connection: Arc<Connection>,
}

impl Connections {
    pub(super) fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self {
            bounds,
            began: Instant::now(),
            open: Mutex::default(),
        })
    }

    /// Adds a connection, for which a silent one may be closed. `None`: the bound is reached, and every
    /// connection has a request under way.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<Arc<Admitted>> {
        let mut open = self.open();
        if open.per_peer.get(&peer).copied().unwrap_or(0) >= self.bounds.per_peer {
            open.close_silent("per_peer", Some(peer))?;
        }
        if open.connections.len() >= self.bounds.total {
            open.close_silent("total", None)?;
        }
        let connection = Arc::new(Connection {
            peer,
            silent_since_ms: AtomicU64::new(self.now_ms()),
            has_served: AtomicBool::new(false),
            close: Notify::new(),
        });
        let number = open.add(Arc::clone(&connection));
        Some(Arc::new(Admitted {
            table: Arc::clone(self),
            number,
            connection,
        }))
    }

    /// Closes the connection that has been silent for longest, because the process has no descriptor
    /// left. Returns whether there was one.
    pub(super) fn make_room(&self) -> bool {
        self.open().close_silent("descriptors", None).is_some()
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(BUSY - 1)
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn add(&mut self, connection: Arc<Connection>) -> u64 {
        self.next += 1;
        *self.per_peer.entry(connection.peer).or_default() += 1;
        self.connections.insert(self.next, connection);
        self.show();
        self.next
    }

    fn remove(&mut self, number: u64) {
        let Some(connection) = self.connections.remove(&number) else {
            return;
        };
        if let Some(count) = self.per_peer.get_mut(&connection.peer) {
            *count -= 1;
            if *count == 0 {
                self.per_peer.remove(&connection.peer);
            }
        }
        self.show();
    }

    /// Closes the longest silent connection, of this peer or of all. The search is linear: only a
    /// flood needs it.
    fn close_silent(&mut self, bound: &'static str, peer: Option<IpAddr>) -> Option<()> {
        let found = self
            .connections
            .iter()
            .filter(|(_, connection)| peer.is_none_or(|peer| peer == connection.peer))
            .map(|(number, connection)| (connection.rank(), *number))
            .filter(|((_, since), _)| *since != BUSY)
            .min();
        metrics::counter!("stockade_connections_refused_total", "bound" => bound).increment(1);
        let (_, number) = found?;
        if let Some(connection) = self.connections.get(&number) {
            connection.close.notify_one();
        }
        // At once, so that the next search does not find it again.
        self.remove(number);
        Some(())
    }

    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn show(&self) {
        metrics::gauge!("stockade_connections").set(self.connections.len() as f64);
    }
}

impl Connection {
    /// The lowest rank makes room first.
    fn rank(&self) -> (bool, u64) {
        (
            self.has_served.load(Ordering::Relaxed),
            self.silent_since_ms.load(Ordering::Relaxed),
        )
    }

    /// Returns when the connection has to make room.
    pub(super) async fn closed(&self) {
        self.close.notified().await;
    }
}

/// A request under way, or a response that is still being written.
pub(super) struct Busy(Arc<Admitted>);

impl Drop for Busy {
    fn drop(&mut self) {
        let Admitted {
            table, connection, ..
        } = &*self.0;
        connection.has_served.store(true, Ordering::Relaxed);
        connection
            .silent_since_ms
            .store(table.now_ms(), Ordering::Relaxed);
    }
}

impl Admitted {
    /// Marks the time of a request: until the mark is dropped, the connection is not silent.
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        self.connection
            .silent_since_ms
            .store(BUSY, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.table.open().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::{net::IpAddr, sync::Arc, time::Duration};

    use futures::FutureExt;

    use super::{Admitted, Bounds, Connections};

    fn peer(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    fn table(total: usize, per_peer: usize) -> Arc<Connections> {
        Connections::new(Bounds { total, per_peer })
    }

    fn is_closed(admitted: &Arc<Admitted>) -> bool {
        admitted.connection.closed().now_or_never().is_some()
    }

    fn pause() {
        std::thread::sleep(Duration::from_millis(3));
    }

    #[test]
    fn at_the_bound_the_longest_silent_connection_makes_room() {
        let table = table(3, 9);
        let open: Vec<_> = (0..3)
            .map(|n| {
                pause();
                table.admit(peer(n)).unwrap()
            })
            .collect();
        // The first one has sent a request, so it is the last to go.
        drop(open[0].busy());
        let more: Vec<_> = (3..5).map(|n| table.admit(peer(n)).unwrap()).collect();
        let closed: Vec<_> = open.iter().map(is_closed).collect();
        assert_eq!(closed, [false, true, true]);
        assert!(!more.iter().any(is_closed));
    }

    #[test]
    fn a_connection_with_a_request_under_way_never_makes_room() {
        let table = table(2, 9);
        let (first, second) = (table.admit(peer(1)).unwrap(), table.admit(peer(2)).unwrap());
        let busy = (first.busy(), second.busy());
        assert!(table.admit(peer(3)).is_none() && !table.make_room());
        drop(busy.0);
        assert!(table.admit(peer(3)).is_some());
        assert!(is_closed(&first) && !is_closed(&second));
    }

    #[test]
    fn a_peer_at_its_bound_loses_connections_of_its_own() {
        let table = table(9, 2);
        let other = table.admit(peer(1)).unwrap();
        pause();
        let greedy: Vec<_> = (0..5).map(|_| table.admit(peer(2)).unwrap()).collect();
        assert_eq!(greedy.iter().filter(|open| is_closed(open)).count(), 3);
        assert!(!is_closed(&other));
    }

    #[test]
    fn a_connection_that_ends_leaves_nothing_behind() {
        let table = table(1, 1);
        for _ in 0..3 {
            drop(table.admit(peer(1)).unwrap());
        }
        let open = table.open();
        assert!(open.connections.is_empty() && open.per_peer.is_empty());
    }
}

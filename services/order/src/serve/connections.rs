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
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    task::Context,
    time::{Duration, Instant},
};

use futures::task::AtomicWaker;

use crate::timer::SharedTimer;

/// Value of [`Connection::silent_since_ms`] while a request is under way.
const BUSY: u64 = u64::MAX;
/// Value of [`Connection::blocked_since_ms`] while the client reads what is sent to it.
const FREE: u64 = u64::MAX;
/// Value of [`Connection::received_since_ms`] while nothing has come.
const NOTHING: u64 = u64::MAX;

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
    /// Since when the client has not taken what was sent to it, or [`FREE`].
    blocked_since_ms: AtomicU64,
    has_served: AtomicBool,
    /// A read has found nothing. Before, a request may lie unread in the socket.
    has_waited: AtomicBool,
    /// When the first bytes after the last request came, or [`NOTHING`]. They may be a part of the next
    /// one.
    received_since_ms: AtomicU64,
    /// The body of the last request has not been read to its end.
    is_in_body: AtomicBool,
    /// How the connection has to end.
    ending: AtomicU8,
    /// The connection's task.
    task: AtomicWaker,
    /// The timer of all limits of the connection and of its requests.
    pub timer: SharedTimer,
}

/// How a connection has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Ending {
    /// It goes on.
    Open,
    /// After the request that is under way.
    Drained,
    /// At once.
    Closed,
}

/// What a connection waits for besides the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// The client must take what was sent to it until then.
    Write(Instant),
    /// The request whose first bytes have come must have a complete head until then.
    Head(Instant),
    /// The next request must have begun until then.
    Idle(Instant),
    /// Between two requests, and nothing of the next one has come: from then on it needs no buffers.
    Park(Instant),
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
            blocked_since_ms: AtomicU64::new(FREE),
            has_served: AtomicBool::new(false),
            has_waited: AtomicBool::new(false),
            received_since_ms: AtomicU64::new(NOTHING),
            is_in_body: AtomicBool::new(false),
            ending: AtomicU8::new(Ending::Open as u8),
            task: AtomicWaker::new(),
            timer: SharedTimer::default(),
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

    /// Ends every connection after the request that is under way.
    pub(super) fn drain(&self) {
        for connection in self.open().connections.values() {
            connection.end(Ending::Drained);
        }
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
            .filter(|((_, _, since), _)| *since != BUSY)
            .min();
        metrics::counter!("stockade_connections_refused_total", "bound" => bound).increment(1);
        let (_, number) = found?;
        if let Some(connection) = self.connections.get(&number) {
            connection.end(Ending::Closed);
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
    /// The lowest rank makes room first. In a flood, connections come faster than they are read: one
    /// that has not been read yet is no silent one, and the oldest of them would be a buyer's.
    ///
    /// A connection whose next head is arriving is silent since its first byte, however long it was idle
    /// before. The limit of a head ends one that never goes on.
    fn rank(&self) -> (bool, bool, u64) {
        let silent = self.silent_since_ms.load(Ordering::Relaxed);
        let since = match self.received_since_ms.load(Ordering::Relaxed) {
            NOTHING => silent,
            received => silent.max(received),
        };
        (
            self.has_served.load(Ordering::Relaxed),
            !self.has_waited.load(Ordering::Relaxed),
            since,
        )
    }

    fn end(&self, ending: Ending) {
        self.ending.fetch_max(ending as u8, Ordering::SeqCst);
        self.task.wake();
    }

    /// How the connection has to end. Wakes the task of `context` when it changes.
    pub(super) fn ending(&self, context: &Context<'_>) -> Ending {
        self.task.register(context.waker());
        match self.ending.load(Ordering::SeqCst) {
            ending if ending == Ending::Open as u8 => Ending::Open,
            ending if ending == Ending::Drained as u8 => Ending::Drained,
            _ => Ending::Closed,
        }
    }

    /// Notes that a read has found nothing.
    pub(super) fn waited(&self) {
        // Most often it is known: then the line stays shared between the processors.
        if !self.has_waited.load(Ordering::Relaxed) {
            self.has_waited.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that the body of the request has been read to its end.
    pub(super) fn body_ended(&self) {
        self.is_in_body.store(false, Ordering::Relaxed);
        // What came was the body, and not the beginning of another request.
        self.received_since_ms.store(NOTHING, Ordering::Relaxed);
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

/// The time limits of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub head: Duration,
    pub idle: Duration,
    pub write: Duration,
    pub park: Duration,
}

impl Admitted {
    /// Marks the time of a request: until the mark is dropped, the connection is not silent.
    /// `has_body`: the request's body is still to be read.
    pub(super) fn busy(self: &Arc<Self>, has_body: bool) -> Busy {
        let connection = &self.connection;
        connection.silent_since_ms.store(BUSY, Ordering::Relaxed);
        connection
            .received_since_ms
            .store(NOTHING, Ordering::Relaxed);
        connection.is_in_body.store(has_body, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    /// Notes that these bytes have come. Some clients send an empty line after a body, which belongs to no
    /// request: an idle connection stays idle.
    pub(super) fn received(&self, bytes: &[u8]) {
        if bytes.iter().all(|byte| b"\r\n".contains(byte)) {
            return;
        }
        let since = &self.connection.received_since_ms;
        // The clock is read for the first bytes only: a head that comes byte by byte gains no time.
        if since.load(Ordering::Relaxed) == NOTHING {
            since.store(self.table.now_ms(), Ordering::Relaxed);
        }
    }

    /// Notes whether the client takes what is sent to it.
    pub(super) fn blocked(&self, is_blocked: bool) {
        let (connection, free) = (&self.connection, FREE);
        let since = connection.blocked_since_ms.load(Ordering::Relaxed);
        if is_blocked == (since != free) {
            return;
        }
        let now = self.table.now_ms();
        let since = if is_blocked { now } else { free };
        connection.blocked_since_ms.store(since, Ordering::Relaxed);
        // The time that the client took to read a response is not its silence.
        let _ = connection.silent_since_ms.fetch_update(
            Ordering::Relaxed,
            Ordering::Relaxed,
            |silent| (silent != BUSY).then_some(now),
        );
    }

    /// The next limit. `None`: a request is under way, which has its own.
    pub(super) fn limit(&self, patience: &Patience) -> Option<Limit> {
        let connection = &self.connection;
        let blocked = connection.blocked_since_ms.load(Ordering::Relaxed);
        if blocked != FREE {
            return Some(Limit::Write(self.after(blocked, patience.write)));
        }
        let silent = connection.silent_since_ms.load(Ordering::Relaxed);
        if silent == BUSY {
            return None;
        }
        if let Some(since) = self.head_since(silent) {
            return Some(Limit::Head(self.after(since, patience.head)));
        }
        let idle = self.idle_limit(patience);
        let park = self.after(silent, patience.park);
        Some(if park < idle {
            Limit::Park(park)
        } else {
            Limit::Idle(idle)
        })
    }

    /// Since when a client that is not between two requests is sending the next one. The time of
    /// silence before a first byte is not the head's, or a connection that was idle for long would be
    /// closed just as it is used again.
    fn head_since(&self, silent: u64) -> Option<u64> {
        let connection = &self.connection;
        let received = connection.received_since_ms.load(Ordering::Relaxed);
        let is_in_body = connection.is_in_body.load(Ordering::Relaxed);
        // What comes in a body does not count for the head that follows it.
        let is_later = connection.has_served.load(Ordering::Relaxed) && !is_in_body;
        match received {
            NOTHING if !is_in_body => None,
            // It may have come while the request before it was under way.
            received if is_later => Some(received.max(silent)),
            _ => Some(silent),
        }
    }

    /// When a client that is silent now has been silent for too long. One that has not had a request
    /// yet has the time of a head: no balancer keeps such connections.
    pub(super) fn idle_limit(&self, patience: &Patience) -> Instant {
        let silent = self.connection.silent_since_ms.load(Ordering::Relaxed);
        let time = match self.connection.has_served.load(Ordering::Relaxed) {
            true => patience.idle,
            false => patience.head,
        };
        self.after(silent, time)
    }

    /// The time after so many milliseconds since the listener began, and `time`.
    fn after(&self, ms: u64, time: Duration) -> Instant {
        self.table.began + Duration::from_millis(ms) + time
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.table.open().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::IpAddr,
        ops::Range,
        sync::Arc,
        task::{Context, Waker},
        time::{Duration, Instant},
    };

    use super::{Admitted, Bounds, Connections, Ending, Limit, Patience};

    fn peer(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    fn table(total: usize, per_peer: usize) -> Arc<Connections> {
        Connections::new(Bounds { total, per_peer })
    }

    fn is_closed(admitted: &Arc<Admitted>) -> bool {
        let context = Context::from_waker(Waker::noop());
        admitted.connection.ending(&context) == Ending::Closed
    }

    fn pause() {
        std::thread::sleep(Duration::from_millis(3));
    }

    /// Connections of these peers, each open for a little longer than the next one.
    fn one_after_the_other(table: &Arc<Connections>, peers: Range<u8>) -> Vec<Arc<Admitted>> {
        peers
            .map(|n| {
                pause();
                table.admit(peer(n)).unwrap()
            })
            .collect()
    }

    #[test]
    fn at_the_bound_the_longest_silent_connection_makes_room() {
        let table = table(3, 9);
        let open = one_after_the_other(&table, 0..3);
        // The first one has sent a request, so it is the last to go.
        drop(open[0].busy(false));
        let more: Vec<_> = (3..5).map(|n| table.admit(peer(n)).unwrap()).collect();
        let closed: Vec<_> = open.iter().map(is_closed).collect();
        assert_eq!(closed, [false, true, true]);
        assert!(!more.iter().any(is_closed));
    }

    #[test]
    fn a_connection_that_was_not_read_yet_goes_after_those_that_were() {
        let table = table(3, 9);
        let open = one_after_the_other(&table, 0..3);
        open[1].connection.waited();
        open[2].connection.waited();
        // Room is made twice by those that were found silent, and then by the oldest.
        let (mut more, mut closed) = (Vec::new(), Vec::new());
        for n in 3..6 {
            pause();
            more.push(table.admit(peer(n)).unwrap());
            closed.push(open.iter().map(is_closed).collect::<Vec<_>>());
        }
        assert_eq!(
            closed,
            [
                [false, true, false],
                [false, true, true],
                [true, true, true]
            ]
        );
    }

    #[test]
    fn a_connection_with_a_request_under_way_never_makes_room() {
        let table = table(2, 9);
        let (first, second) = (table.admit(peer(1)).unwrap(), table.admit(peer(2)).unwrap());
        let busy = (first.busy(false), second.busy(false));
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

    const PATIENCE: Patience = Patience {
        head: Duration::from_secs(30),
        idle: Duration::from_secs(75),
        write: Duration::from_secs(10),
        park: Duration::from_secs(1),
    };

    #[test]
    fn a_connection_parks_only_between_requests() {
        let admitted = table(9, 9).admit(peer(1)).unwrap();
        let limit = || admitted.limit(&PATIENCE);
        let parks = || matches!(limit(), Some(Limit::Park(_)));
        assert!(parks(), "it has sent nothing");
        admitted.received(b"GET /");
        assert!(matches!(limit(), Some(Limit::Head(_))), "half a head");
        let busy = admitted.busy(true);
        assert_eq!(limit(), None, "the request has its own limit");
        drop(busy);
        assert!(
            matches!(limit(), Some(Limit::Head(_))),
            "what comes next may be the rest of the body, and not a head"
        );
        admitted.connection.body_ended();
        assert!(parks());
        admitted.received(b"GET /");
        drop(admitted.busy(false));
        assert!(parks());
    }

    #[test]
    fn a_connection_is_idle_for_longer_than_a_head_may_take() {
        let table = table(9, 9);
        let admitted = table.admit(peer(1)).unwrap();
        let opened = admitted.idle_limit(&PATIENCE);
        assert!(opened <= Instant::now() + PATIENCE.head, "a first request");
        drop(admitted.busy(false));
        let after_request = Instant::now();
        let idle = admitted.idle_limit(&PATIENCE);
        // The clock of the table has whole milliseconds.
        let ms = Duration::from_millis(1);
        assert!(idle + ms >= opened - PATIENCE.head + PATIENCE.idle);
        assert!(idle <= after_request + PATIENCE.idle);
        let never_parks = Patience {
            park: PATIENCE.idle,
            ..PATIENCE
        };
        assert_eq!(admitted.limit(&never_parks), Some(Limit::Idle(idle)));
    }

    #[test]
    fn the_time_of_a_head_begins_with_its_first_byte_and_no_later_one_extends_it() {
        let patience = Patience {
            head: Duration::from_millis(1),
            ..PATIENCE
        };
        let admitted = table(9, 9).admit(peer(1)).unwrap();
        drop(admitted.busy(false));
        // As long as a head may take, and longer.
        pause();
        let first_byte = Instant::now();
        admitted.received(b"GET /");
        let limit = admitted.limit(&patience);
        assert!(
            matches!(limit, Some(Limit::Head(until)) if until >= first_byte),
            "{limit:?}"
        );
        pause();
        admitted.received(b"GET /");
        assert_eq!(admitted.limit(&patience), limit);
    }

    #[test]
    fn a_connection_whose_next_head_arrives_makes_room_after_those_that_are_idle() {
        let table = table(2, 9);
        let open = one_after_the_other(&table, 0..2);
        for admitted in &open {
            drop(admitted.busy(false));
            admitted.connection.waited();
            pause();
        }
        open[0].received(b"GET /");
        let _third = table.admit(peer(2)).unwrap();
        let closed: Vec<_> = open.iter().map(is_closed).collect();
        assert_eq!(closed, [false, true]);
    }

    #[test]
    fn an_empty_line_after_a_body_begins_no_head() {
        let admitted = table(9, 9).admit(peer(1)).unwrap();
        drop(admitted.busy(true));
        admitted.connection.body_ended();
        admitted.received(b"\r\n");
        assert!(matches!(admitted.limit(&PATIENCE), Some(Limit::Park(_))));
        admitted.received(b"\r\nGET /");
        assert!(matches!(admitted.limit(&PATIENCE), Some(Limit::Head(_))));
    }

    #[test]
    fn the_time_of_a_first_head_begins_with_the_connection() {
        let admitted = table(9, 9).admit(peer(1)).unwrap();
        let opened = admitted.idle_limit(&PATIENCE);
        pause();
        admitted.received(b"GET /");
        assert_eq!(admitted.limit(&PATIENCE), Some(Limit::Head(opened)));
    }

    #[test]
    fn a_client_that_does_not_read_has_the_write_limit_and_then_the_full_head_limit() {
        let admitted = table(9, 9).admit(peer(1)).unwrap();
        let silent = admitted.idle_limit(&PATIENCE);
        pause();
        admitted.blocked(true);
        let limit = admitted.limit(&PATIENCE);
        pause();
        admitted.blocked(true);
        assert!(matches!(limit, Some(Limit::Write(_))));
        assert_eq!(admitted.limit(&PATIENCE), limit, "it goes on");
        admitted.blocked(false);
        assert!(matches!(admitted.limit(&PATIENCE), Some(Limit::Park(_))));
        assert!(admitted.idle_limit(&PATIENCE) > silent);
        let busy = admitted.busy(false);
        admitted.blocked(true);
        assert!(matches!(admitted.limit(&PATIENCE), Some(Limit::Write(_))));
        admitted.blocked(false);
        assert_eq!(admitted.limit(&PATIENCE), None);
        drop(busy);
    }

    #[test]
    fn a_drained_connection_may_still_be_closed_and_not_the_other_way_round() {
        let table = table(9, 9);
        let admitted = table.admit(peer(1)).unwrap();
        let ending = || {
            let context = Context::from_waker(Waker::noop());
            admitted.connection.ending(&context)
        };
        assert_eq!(ending(), Ending::Open);
        table.drain();
        assert_eq!(ending(), Ending::Drained);
        assert!(table.make_room());
        assert_eq!(ending(), Ending::Closed);
        table.drain();
        assert_eq!(ending(), Ending::Closed);
    }
}

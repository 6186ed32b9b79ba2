//! The open connections of a listener. There is an upper bound, and at the bound a connection that
//! waits for its client makes room: one that is silent, whose body has not come whole, or that is
//! not read.
//!
//! A client that opens connections and sends nothing would otherwise use up the descriptors of the
//! process, which are those of Redis and the ledger too. Refusing new connections would not help:
//! the silent ones would keep all others out. [`Rank`] says which goes first.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering},
    },
    task::Context,
    time::{Duration, Instant},
};

use domain::SafetyCheck;
use futures::task::AtomicWaker;
use ipnet::IpNet;

use super::{arriving::Arriving, reader::Reader};
use crate::timer::SharedTimer;

/// Value of [`Connection::silent_since_ms`] while a request is under way.
const BUSY: u64 = u64::MAX;
/// Value of [`Connection::received_since_ms`] while nothing has come.
const NOTHING: u64 = u64::MAX;
/// A first request and a body of the size that the API reads have come by then, and a response has
/// been taken.
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// A flood that replaces all connections costs so many searches.
const SEARCHES: usize = 64;
/// One of so many connections came last, and makes room after the others if it has had no request
/// yet: it may not have had the time to send one.
const NEWEST: usize = 8;
/// Connections that have made room and still have their descriptor, which is one of those that are
/// kept back. With more of them, the listener waits.
const CLOSING_MAX: usize = 32;
/// Time between two looks at their number.
const CLOSING_PAUSE: Duration = Duration::from_millis(1);

/// Upper bounds of open connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Connections of all peers.
    pub total: usize,
    /// Connections of one peer.
    pub per_peer: usize,
    /// Connections of one peer that wait for the body of a request.
    pub bodies_per_peer: usize,
    /// Peers whose bodies have no bound of their own, because they are those of many clients.
    pub proxies: Vec<IpNet>,
}

/// The open connections.
pub(super) struct Connections {
    bounds: Bounds,
    began: Instant,
    open: Mutex<Open>,
    /// Connections that have a descriptor, also those that have made room and are not closed yet.
    alive: AtomicUsize,
}

#[derive(Default)]
struct Open {
    next: u64,
    connections: HashMap<u64, Arc<Connection>>,
    /// The numbers of each peer's connections: a flood of one peer costs no search through all.
    per_peer: HashMap<IpAddr, BTreeSet<u64>>,
    /// Connections of each peer that wait for a body: since when, and their number.
    bodies: HashMap<IpAddr, BTreeSet<(u64, u64)>>,
    /// Connections that the last search found to make room, the first one last, and since when.
    next_to_go: Vec<(u64, u64)>,
}

/// Which connection makes room: the lowest rank goes first, and of one rank the oldest. [`Turn`]
/// puts the newest ones last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// It was found silent for longer than [`SLOW_AFTER`], and has not had a request.
    Silent,
    /// Its client has not sent a body, or not taken a response, for longer than [`SLOW_AFTER`].
    Slow,
    /// Its first request or the body of it is arriving, or its client has not taken a response yet.
    /// On a busy machine a buyer connects a moment before the request comes.
    Arriving,
    /// It was not read yet. In a flood, connections come faster than they are read, and the oldest
    /// of them would be a buyer's.
    Unread,
    /// It has had a request, and waits for the next one.
    Idle,
    /// It has had a request, and the body of the next one is arriving.
    ArrivingNext,
    /// Its response is a stream of events, which has no end of its own. Its client connects again.
    Live,
    /// Its request has not begun to read its body, which may be whole.
    Queued,
}

impl Rank {
    /// Whether a connection of this rank has never had a request, or keeps one waiting.
    fn is_strangers(self) -> bool {
        self <= Self::Arriving
    }
}

/// The order in which connections make room, lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    /// It is one of those that came last, and has had no request. Otherwise a crowd that has had a
    /// request on each connection would outlive every newcomer.
    is_new: bool,
    rank: Rank,
}

impl Turn {
    /// Whether a search may note the connection for the rooms that are made after this one's.
    fn is_lasting_after(self, first: Self) -> bool {
        let is_alike = self.rank.is_strangers() == first.rank.is_strangers();
        is_alike && !self.is_new && self.rank <= Rank::Idle
    }
}

/// One connection, as it is shared by its task and the table.
pub(super) struct Connection {
    peer: IpAddr,
    /// Milliseconds after the listener began, or [`BUSY`].
    silent_since_ms: AtomicU64,
    has_served: AtomicBool,
    /// A read has found nothing. Before, a request may lie unread in the socket.
    has_waited: AtomicBool,
    /// When the first bytes after the last request came, or [`NOTHING`]. They may be a part of the
    /// next one.
    received_since_ms: AtomicU64,
    /// Since when the response is a stream without an end, or [`NOTHING`].
    live_since_ms: AtomicU64,
    /// The body of the last request has not been read to its end.
    is_in_body: AtomicBool,
    /// Since when the connection is one of [`Open::bodies`], or [`NOTHING`].
    counted_since_ms: AtomicU64,
    /// The body of the request that is under way.
    pub body: Arriving,
    reader: Reader,
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
    /// The request must have more of its body until then.
    Body(Instant),
    /// The request whose first bytes have come must have a complete head until then.
    Head(Instant),
    /// The next request must have begun until then.
    Idle(Instant),
    /// Between two requests, and nothing of the next one has come: from then on it needs no
    /// buffers.
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
            alive: AtomicUsize::default(),
        })
    }

    /// Adds a connection, for which one that waits for its client may be closed. `None`: the bound
    /// is reached, and every connection has a whole request under way.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<Arc<Admitted>> {
        let mut open = self.open();
        let is_bound = SafetyCheck::ConnectionBound.is_enabled();
        if is_bound && open.per_peer.get(&peer).map_or(0, BTreeSet::len) >= self.bounds.per_peer {
            open.make_room("per_peer", Some(peer), self.now_ms())?;
        }
        if is_bound && open.connections.len() >= self.bounds.total {
            open.make_room("total", None, self.now_ms())?;
        }
        let connection = Arc::new(Connection {
            peer,
            silent_since_ms: AtomicU64::new(self.now_ms()),
            has_served: AtomicBool::new(false),
            has_waited: AtomicBool::new(false),
            received_since_ms: AtomicU64::new(NOTHING),
            live_since_ms: AtomicU64::new(NOTHING),
            is_in_body: AtomicBool::new(false),
            counted_since_ms: AtomicU64::new(NOTHING),
            body: Arriving::default(),
            reader: Reader::default(),
            ending: AtomicU8::new(Ending::Open as u8),
            task: AtomicWaker::new(),
            timer: SharedTimer::default(),
        });
        let number = open.add(Arc::clone(&connection));
        self.alive.fetch_add(1, Ordering::Relaxed);
        Some(Arc::new(Admitted {
            table: Arc::clone(self),
            number,
            connection,
        }))
    }

    /// Closes a connection that waits for its client, because the process has no descriptor left.
    /// Returns whether there was one.
    pub(super) fn make_room(&self) -> bool {
        let now = self.now_ms();
        self.open().make_room("descriptors", None, now).is_some()
    }

    /// Waits while many connections that have made room still have their descriptor, and no longer
    /// than `most`. In a flood, connections are accepted faster than others are closed, and would
    /// take the descriptors that are kept back for the stores.
    pub(super) async fn settle(&self, most: Duration) {
        let settled = async {
            while self.closing() > CLOSING_MAX {
                tokio::time::sleep(CLOSING_PAUSE).await;
            }
        };
        let _ = tokio::time::timeout(most, settled).await;
    }

    /// Connections that have made room and still have their descriptor.
    fn closing(&self) -> usize {
        let open = self.open().connections.len();
        self.alive.load(Ordering::Relaxed).saturating_sub(open)
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

    /// Whether the bodies of this peer are bounded.
    fn bounds_bodies_of(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        !self.bounds.proxies.iter().any(|net| net.contains(&peer))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn add(&mut self, connection: Arc<Connection>) -> u64 {
        self.next += 1;
        let of_peer = self.per_peer.entry(connection.peer).or_default();
        of_peer.insert(self.next);
        self.connections.insert(self.next, connection);
        self.show();
        self.next
    }

    fn remove(&mut self, number: u64) {
        let Some(connection) = self.connections.remove(&number) else {
            return;
        };
        remove_entry(&mut self.per_peer, connection.peer, &number);
        let counted = connection.counted_since_ms.swap(NOTHING, Ordering::Relaxed);
        remove_entry(&mut self.bodies, connection.peer, &(counted, number));
        self.show();
    }

    /// Closes the connection of the lowest rank, of this peer or of all.
    fn make_room(&mut self, bound: &'static str, peer: Option<IpAddr>, now_ms: u64) -> Option<()> {
        show_refused(bound);
        let number = match peer {
            Some(peer) => self.ranked_of(peer, now_ms).min()?.2,
            None => self.next_to_go(now_ms)?,
        };
        self.close(number);
        Some(())
    }

    /// The connection of the lowest rank.
    ///
    /// The search is linear, and a flood of connections must not cost one for each. So it finds a
    /// share of all of them, and the next searches take these. Idle ones are noted only if no
    /// stranger's connection may go.
    fn next_to_go(&mut self, now_ms: u64) -> Option<u64> {
        while let Some((since, number)) = self.next_to_go.pop() {
            let rank = self.connections.get(&number);
            let rank = rank.and_then(|connection| connection.rank(now_ms));
            if rank.is_some_and(|(rank, still)| rank <= Rank::Idle && still == since) {
                return Some(number);
            }
        }
        let mut ranked: Vec<_> = self.ranked(now_ms).collect();
        let share = (ranked.len() / SEARCHES).max(1);
        if ranked.len() > share {
            ranked.select_nth_unstable(share);
            ranked.truncate(share);
        }
        ranked.sort_unstable();
        let (turn, _, first) = ranked.first().copied()?;
        let others = ranked.drain(1..);
        let others = others.filter(|(other, ..)| other.is_lasting_after(turn));
        self.next_to_go = others.map(|(_, since, number)| (since, number)).collect();
        self.next_to_go.reverse();
        Some(first)
    }

    /// The connections that may make room: their turn, since when, number.
    fn ranked(&self, now_ms: u64) -> impl Iterator<Item = (Turn, u64, u64)> {
        let connections = self.connections.iter();
        connections.filter_map(move |(number, connection)| self.turn(*number, connection, now_ms))
    }

    /// The same for those of one peer.
    fn ranked_of(&self, peer: IpAddr, now_ms: u64) -> impl Iterator<Item = (Turn, u64, u64)> {
        let numbers = self.per_peer.get(&peer).into_iter().flatten();
        numbers.filter_map(move |number| {
            let connection = self.connections.get(number)?;
            self.turn(*number, connection, now_ms)
        })
    }

    fn turn(&self, number: u64, connection: &Connection, now_ms: u64) -> Option<(Turn, u64, u64)> {
        let newest = u64::try_from(self.connections.len() / NEWEST).unwrap_or(u64::MAX);
        let is_newest = number > self.next.saturating_sub(newest);
        let (rank, since) = connection.rank(now_ms)?;
        let is_new = is_newest && !connection.has_served.load(Ordering::Relaxed);
        Some((Turn { is_new, rank }, since, number))
    }

    /// Closes and removes it, so that the next search does not find it again.
    fn close(&mut self, number: u64) {
        if let Some(connection) = self.connections.get(&number) {
            connection.end(Ending::Closed);
        }
        self.remove(number);
    }

    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn show(&self) {
        metrics::gauge!("stockade_connections").set(self.connections.len() as f64);
    }
}

fn show_refused(bound: &'static str) {
    metrics::counter!("stockade_connections_refused_total", "bound" => bound).increment(1);
}

fn remove_entry<T: Ord>(sets: &mut HashMap<IpAddr, BTreeSet<T>>, peer: IpAddr, entry: &T) {
    if let Some(set) = sets.get_mut(&peer) {
        set.remove(entry);
        if set.is_empty() {
            sets.remove(&peer);
        }
    }
}

/// Whether a client that sends or reads at all would have done so by now.
fn is_slow(since_ms: u64, now_ms: u64) -> bool {
    Duration::from_millis(now_ms.saturating_sub(since_ms)) > SLOW_AFTER
}

impl Connection {
    /// The rank, and since when the connection has had it. `None`: it makes no room, because a
    /// whole request is under way.
    fn rank(&self, now_ms: u64) -> Option<(Rank, u64)> {
        let has_served = self.has_served.load(Ordering::Relaxed);
        let (since, rank) = if let Some(since) = self.reader.blocked_since_ms() {
            (since, Rank::Arriving)
        } else if self.body.is_awaited() {
            let rank = match has_served {
                true => Rank::ArrivingNext,
                false => Rank::Arriving,
            };
            (self.body.since_ms(), rank)
        } else if self.body.is_open() {
            return Some((Rank::Queued, self.body.since_ms()));
        } else {
            return self.silent_rank(has_served, now_ms);
        };
        let rank = if is_slow(since, now_ms) {
            Rank::Slow
        } else {
            rank
        };
        Some((rank, since))
    }

    /// A connection whose next head is arriving is silent since its first byte, however long it was
    /// idle before. The limit of a head ends one that never goes on.
    fn silent_rank(&self, has_served: bool, now_ms: u64) -> Option<(Rank, u64)> {
        let silent = self.silent_since_ms.load(Ordering::Relaxed);
        if silent == BUSY {
            let live = self.live_since_ms.load(Ordering::Relaxed);
            return (live != NOTHING).then_some((Rank::Live, live));
        }
        let since = match self.received_since_ms.load(Ordering::Relaxed) {
            NOTHING => silent,
            received => silent.max(received),
        };
        let rank = match (has_served, self.has_waited.load(Ordering::Relaxed)) {
            (true, _) => Rank::Idle,
            (false, false) => Rank::Unread,
            (false, true) if is_slow(since, now_ms) => Rank::Silent,
            (false, true) => Rank::Arriving,
        };
        Some((rank, since))
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
        self.body.waited();
    }

    /// Whether a write waits for the client.
    pub(super) fn is_unread(&self) -> bool {
        self.reader.blocked_since_ms().is_some()
    }

    /// Notes that the body of the request has been read to its end.
    pub(super) fn body_ended(&self) {
        self.body.ended();
        self.is_in_body.store(false, Ordering::Relaxed);
        // What came was the body, and not the beginning of another request.
        self.received_since_ms.store(NOTHING, Ordering::Relaxed);
    }
}

/// A request under way, or a response that is still being written.
pub(super) struct Busy(Arc<Admitted>);

impl Busy {
    /// Notes that the response is a stream without an end: the connection may make room meanwhile.
    pub(super) fn live(&self) {
        let Admitted {
            table, connection, ..
        } = &*self.0;
        let now = table.now_ms();
        connection.live_since_ms.store(now, Ordering::Relaxed);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let Admitted {
            table, connection, ..
        } = &*self.0;
        connection.live_since_ms.store(NOTHING, Ordering::Relaxed);
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
    /// What any body may take, besides the time of its bytes at the minimum rate.
    pub body: Duration,
    /// Minimum rates in bytes per second: of a body, and of a client that reads. 0: none.
    pub body_rate: u64,
    pub write_rate: u64,
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
        if has_body {
            connection.body.begin(self.table.now_ms());
        }
        Busy(Arc::clone(self))
    }

    /// Notes that these bytes have come. Some clients send an empty line after a body, which
    /// belongs to no request: an idle connection stays idle.
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

    /// Notes that a write waits for the client.
    pub(super) fn blocked(&self) {
        if self.connection.reader.blocked(|| self.table.now_ms()) {
            self.is_not_silent();
        }
    }

    /// Notes that the client has made room for so many bytes.
    pub(super) fn took(&self, bytes: usize, patience: &Patience) {
        let now = || self.table.now_ms();
        let reader = &self.connection.reader;
        if reader.took(bytes, patience.write_rate, now) {
            self.is_not_silent();
        }
    }

    /// The time that a client took to read a response is not its silence.
    fn is_not_silent(&self) {
        let now = self.table.now_ms();
        let _ = self.connection.silent_since_ms.fetch_update(
            Ordering::Relaxed,
            Ordering::Relaxed,
            |silent| (silent != BUSY).then_some(now),
        );
    }

    /// Counts the body that the connection waits for, or no longer waits for. At the peer's bound,
    /// the one that it has waited for longest makes room.
    pub(super) fn count_body(&self) {
        let connection = &self.connection;
        let body = &connection.body;
        let since = if body.is_awaited() {
            body.since_ms()
        } else {
            NOTHING
        };
        let counted = connection.counted_since_ms.load(Ordering::Relaxed);
        if since == counted || !self.table.bounds_bodies_of(connection.peer) {
            return;
        }
        let (mut open, peer) = (self.table.open(), connection.peer);
        // One that has made room was removed, and is counted no more.
        if !open.connections.contains_key(&self.number) {
            return;
        }
        remove_entry(&mut open.bodies, peer, &(counted, self.number));
        connection.counted_since_ms.store(since, Ordering::Relaxed);
        if since == NOTHING {
            return;
        }
        let bodies = open.bodies.entry(peer).or_default();
        bodies.insert((since, self.number));
        if bodies.len() <= self.table.bounds.bodies_per_peer {
            return;
        }
        if let Some((_, oldest)) = bodies.first().copied() {
            show_refused("bodies_per_peer");
            open.close(oldest);
        }
    }

    /// The next limit. `None`: a request is under way, which has its own.
    pub(super) fn limit(&self, patience: &Patience) -> Option<Limit> {
        let connection = &self.connection;
        if let Some(blocked) = connection.reader.blocked_since_ms() {
            return Some(Limit::Write(self.after(blocked, patience.write)));
        }
        let silent = connection.silent_since_ms.load(Ordering::Relaxed);
        if silent == BUSY {
            let body = &connection.body;
            let time = body.time(patience.body, patience.body_rate)?;
            return Some(Limit::Body(self.after(body.since_ms(), time)));
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
    /// silence before a first byte is not the head's, or a connection that was idle for long would
    /// be closed just as it is used again.
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

    /// When a client that is silent now has been silent for too long. One that has not had a
    /// request yet has the time of a head: no balancer keeps such connections.
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
        self.table.alive.fetch_sub(1, Ordering::Relaxed);
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

    use futures::FutureExt;

    use super::{
        Admitted, Bounds, Busy, CLOSING_MAX, Connections, Ending, Limit, Patience,
        Rank::{Arriving, ArrivingNext, Idle, Live, Queued, Silent, Slow, Unread},
        SLOW_AFTER,
    };

    fn peer(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    fn table(total: usize, per_peer: usize) -> Arc<Connections> {
        table_of(total, per_peer, usize::MAX)
    }

    fn table_of(total: usize, per_peer: usize, bodies_per_peer: usize) -> Arc<Connections> {
        Connections::new(Bounds {
            total,
            per_peer,
            bodies_per_peer,
            proxies: vec!["10.0.0.9/32".parse().unwrap()],
        })
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

    /// A request under way that waits for its body.
    fn with_half_a_body(admitted: &Arc<Admitted>) -> Busy {
        let busy = admitted.busy(true);
        admitted.connection.body.wanted();
        admitted.connection.waited();
        admitted.count_body();
        busy
    }

    #[test]
    fn a_request_that_waits_for_its_body_makes_room_and_a_whole_one_does_not() {
        let table = table(3, 9);
        let open = one_after_the_other(&table, 0..3);
        let _busy: Vec<_> = open.iter().map(with_half_a_body).collect();
        open[0].connection.body_ended();
        let _more = (table.admit(peer(3)).unwrap(), table.admit(peer(4)).unwrap());
        let closed: Vec<_> = open.iter().map(is_closed).collect();
        assert_eq!(closed, [false, true, true]);
    }

    #[test]
    fn a_request_that_gives_up_its_body_is_under_work_and_one_that_has_not_begun_goes_last() {
        let table = table(2, 9);
        let open = one_after_the_other(&table, 0..2);
        let _busy: Vec<_> = open.iter().map(|admitted| admitted.busy(true)).collect();
        open[0].connection.body.ended();
        assert_eq!(open[0].connection.rank(0), None);
        assert_eq!(open[1].connection.rank(0).unwrap().0, Queued);
        assert!(table.admit(peer(2)).is_some() && is_closed(&open[1]));
    }

    #[test]
    fn a_flood_replaces_the_oldest_of_its_own_connections_and_searches_seldom() {
        let table = table(640, 9999);
        let admit = |n| {
            let admitted = table.admit(peer(n)).unwrap();
            admitted.connection.waited();
            admitted
        };
        let flood: Vec<_> = (0..640).map(|_| admit(1)).collect();
        pause();
        let mut more = vec![admit(1)];
        let found = table.open().next_to_go.len();
        assert!(found > 5, "{found}");
        // It was silent when it was found, and has had a request since.
        let honest = &flood[3];
        drop(honest.busy(false));
        more.extend((0..30).map(|_| admit(1)));
        assert!(!is_closed(honest));
        assert_eq!(flood.iter().filter(|open| is_closed(open)).count(), 31);
        assert!(!more.iter().any(is_closed));
    }

    #[test]
    fn a_crowd_that_had_a_request_on_each_connection_does_not_outlive_a_newcomer() {
        let table = table(64, 9999);
        let served = |n| {
            let admitted = table.admit(peer(n)).unwrap();
            drop(admitted.busy(false));
            admitted
        };
        let mut crowd: Vec<_> = (0..64).map(|_| served(1)).collect();
        pause();
        // Unread, silent, and with half of its body.
        let newcomers: Vec<_> = (2..5).map(|n| table.admit(peer(n)).unwrap()).collect();
        newcomers[1].connection.waited();
        let _busy = with_half_a_body(&newcomers[2]);
        // They are among the newest eighth until then.
        crowd.extend((0..5).map(|_| served(1)));
        assert!(!newcomers.iter().any(is_closed));
        assert_eq!(crowd.iter().filter(|open| is_closed(open)).count(), 8);
        // A stranger that goes on to wait is no newcomer any more.
        crowd.extend((0..8).map(|_| served(1)));
        assert!(newcomers.iter().all(is_closed));
    }

    #[test]
    fn a_crowd_of_newcomers_takes_no_more_than_an_eighth_from_those_that_are_idle() {
        let table = table(64, 9999);
        let idle: Vec<_> = (0..64).map(|_| table.admit(peer(1)).unwrap()).collect();
        for admitted in &idle {
            drop(admitted.busy(false));
        }
        let silent = |_| {
            let admitted = table.admit(peer(2)).unwrap();
            admitted.connection.waited();
            admitted
        };
        let _crowd: Vec<_> = (0..500).map(silent).collect();
        let closed = idle.iter().filter(|open| is_closed(open)).count();
        assert!((1..=10).contains(&closed), "{closed}");
    }

    #[test]
    fn a_flood_of_connections_that_had_a_request_is_searched_seldom() {
        let table = table(640, 9999);
        let served = |_| {
            let admitted = table.admit(peer(1)).unwrap();
            drop(admitted.busy(false));
            admitted
        };
        let flood: Vec<_> = (0..640).map(served).collect();
        pause();
        let mut more = vec![served(0)];
        assert!(table.open().next_to_go.len() > 5);
        // One that was found has had another request since.
        let again = table.open().next_to_go[0].1;
        let again = Arc::clone(&table.open().connections[&again]);
        again
            .silent_since_ms
            .store(table.now_ms(), std::sync::atomic::Ordering::Relaxed);
        more.extend((0..30).map(served));
        assert_eq!(flood.iter().filter(|open| is_closed(open)).count(), 31);
        let context = Context::from_waker(Waker::noop());
        assert_eq!(again.ending(&context), Ending::Open);
        assert!(!more.iter().any(is_closed));
    }

    #[tokio::test]
    async fn the_listener_waits_for_the_descriptors_of_those_that_have_made_room() {
        let hour = Duration::from_secs(3600);
        let table = table(8, 9999);
        let mut open: Vec<_> = (0..8 + CLOSING_MAX)
            .map(|_| table.admit(peer(1)).unwrap())
            .collect();
        assert!(table.settle(hour).now_or_never().is_some());
        open.push(table.admit(peer(1)).unwrap());
        assert!(table.settle(hour).now_or_never().is_none());
        // Whatever holds the others up, the listener goes on.
        table.settle(Duration::from_millis(1)).await;
        let closed = open.iter().position(is_closed).unwrap();
        drop(open.swap_remove(closed));
        table.settle(hour).await;
    }

    #[test]
    fn who_makes_room_first_is_told_by_what_the_connection_waits_for() {
        let table = table(9, 9);
        let open = one_after_the_other(&table, 0..8);
        let [silent, slow, blocked, arriving, unread, idle, next, live] = &open[..] else {
            unreachable!("there are eight")
        };
        let streaming = live.busy(false);
        streaming.live();
        silent.connection.waited();
        for served in [idle, next] {
            drop(served.busy(false));
        }
        let _busy = [slow, arriving, next].map(with_half_a_body);
        blocked.blocked();
        // Whatever time has passed, none has then.
        let now = 0;
        let late = table.now_ms() + u64::try_from(2 * SLOW_AFTER.as_millis()).unwrap();
        let rank = |admitted: &Arc<Admitted>, now| admitted.connection.rank(now).unwrap().0;
        let ranks = [
            rank(silent, late),
            rank(slow, late),
            rank(blocked, now),
            rank(arriving, now),
            rank(unread, late),
            rank(idle, late),
            rank(next, now),
            rank(live, late),
        ];
        let expected = [
            Silent,
            Slow,
            Arriving,
            Arriving,
            Unread,
            Idle,
            ArrivingNext,
            Live,
        ];
        assert_eq!(ranks, expected);
        assert!(ranks.is_sorted());
        assert_eq!(rank(silent, now), Arriving, "its request is on its way");
        assert_eq!(rank(blocked, late), Slow);
        assert_eq!(rank(next, late), Slow);
        drop(streaming);
        assert_eq!(rank(live, late), Idle, "the stream has ended");
    }

    #[test]
    fn a_peer_with_many_bodies_loses_the_oldest_and_a_proxy_does_not() {
        let table = table_of(99, 99, 2);
        let other = table.admit(peer(1)).unwrap();
        let _other = with_half_a_body(&other);
        for (n, kept) in [(2, 2), (9, 5)] {
            let mut bodies = Vec::new();
            for _ in 0..5 {
                pause();
                let admitted = table.admit(peer(n)).unwrap();
                bodies.push((with_half_a_body(&admitted), admitted));
            }
            let closed: Vec<_> = bodies.iter().map(|(_, body)| is_closed(body)).collect();
            assert!(closed.is_sorted_by(|a, b| a >= b), "{closed:?}");
            assert_eq!(closed.iter().filter(|closed| !**closed).count(), kept);
        }
        assert!(!is_closed(&other));
    }

    #[test]
    fn a_body_that_has_come_is_counted_no_more() {
        let table = table_of(9, 9, 1);
        for _ in 0..3 {
            let admitted = table.admit(peer(1)).unwrap();
            let busy = with_half_a_body(&admitted);
            assert_eq!(table.open().bodies[&peer(1)].len(), 1);
            admitted.connection.body_ended();
            admitted.count_body();
            assert!(table.open().bodies.is_empty());
            let _next = (busy, with_half_a_body(&admitted));
            assert!(!is_closed(&admitted));
        }
        // What is dropped with its body leaves nothing, either.
        assert!(table.open().bodies.is_empty());
    }

    #[test]
    fn a_body_has_the_time_of_its_bytes_at_the_minimum_rate() {
        let admitted = table(9, 9).admit(peer(1)).unwrap();
        let _busy = with_half_a_body(&admitted);
        let limit = || match admitted.limit(&PATIENCE) {
            Some(Limit::Body(until)) => Some(until),
            _ => None,
        };
        let first = limit().unwrap();
        admitted.connection.body.came(1000);
        assert_eq!(limit().unwrap() - first, Duration::from_secs(2));
        admitted.connection.body_ended();
        assert_eq!(limit(), None);
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
        body: Duration::from_secs(5),
        body_rate: 500,
        write_rate: 500,
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
        admitted.blocked();
        let limit = admitted.limit(&PATIENCE);
        pause();
        admitted.blocked();
        assert!(matches!(limit, Some(Limit::Write(_))));
        assert_eq!(admitted.limit(&PATIENCE), limit, "it goes on");
        admitted.took(1000, &PATIENCE);
        assert!(matches!(admitted.limit(&PATIENCE), Some(Limit::Park(_))));
        assert!(admitted.idle_limit(&PATIENCE) > silent);
        let busy = admitted.busy(false);
        admitted.blocked();
        assert!(matches!(admitted.limit(&PATIENCE), Some(Limit::Write(_))));
        admitted.took(1000, &PATIENCE);
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

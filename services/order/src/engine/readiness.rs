//! Whether an order could be placed now, by the last look at the stores.
//!
//! A task looks once a second, whether anybody asks or not ([`crate::watch_stores`]). A request
//! reads what it saw, and calls no store: balancers, supervisors and attackers may ask as often as
//! they like.
//!
//! One refusal makes the process not ready at once, and the first look without one makes it ready.
//! The refusal may also be that of an order: whoever was refused and asks why hears the same from
//! here. There is no damping here. A balancer that wants some counts answers itself (`fall`,
//! `rise`, `failureThreshold`), and Prometheus waits before it alerts.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures::future::join;
use ledger::LedgerError;
use stock::WriteCheck;
use tokio::time::{Instant, timeout};

use super::{Engine, EngineError};

/// How long a store may take to answer. One that takes longer takes no orders in time either.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// How long the process believes what it saw. It is longer than the time between two looks at a
/// store that never answers.
const BELIEVED_FOR: Duration = Duration::from_secs(5);

/// Why an order could not be placed now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotReady {
    /// The process has just started.
    #[error("the stores have not been asked yet")]
    NotAsked,
    /// What looks at the stores stands still, so nothing is known of them.
    #[error("the stores were last asked {} s ago", .0.as_secs())]
    Outdated(Duration),
    /// The stores that take no order, and what each of them said.
    #[error("{0}")]
    Refused(String),
}

/// What the last looks at the stores have shown, and what orders have met since.
#[derive(Debug, Default)]
pub(crate) struct Readiness(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    redis: Side,
    ledger: Side,
}

/// The masters of Redis, or the ledger. Each is asked for itself, so that one that is slow makes
/// nothing older that is known of the other.
#[derive(Debug, Default)]
struct Side {
    look: Option<Look>,
    /// When an order was refused, and why, unless a look has begun since: that one knows better.
    refused_order: Option<(Instant, String)>,
}

#[derive(Debug)]
struct Look {
    at: Instant,
    /// By store: why it takes no order, or `None`.
    stores: HashMap<Store, Option<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Redis,
    Ledger,
}

impl Seen {
    fn side(&mut self, kind: Kind) -> &mut Side {
        match kind {
            Kind::Redis => &mut self.redis,
            Kind::Ledger => &mut self.ledger,
        }
    }
}

/// A store, as metrics, log and answers name it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Store {
    /// A Redis server, by its address.
    Redis(String),
    Ledger,
}

impl std::fmt::Display for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Redis(server) => write!(f, "Redis {server}"),
            Self::Ledger => f.write_str("the ledger"),
        }
    }
}

impl Store {
    /// 1: it takes orders; 0: it does not. `NaN`: it is not one of the stores any more.
    fn report(&self, value: f64) {
        match self {
            Self::Redis(server) => {
                let server = server.clone();
                metrics::gauge!("stockade_store_writable", "store" => "redis", "server" => server)
            }
            Self::Ledger => metrics::gauge!("stockade_store_writable", "store" => "ledger"),
        }
        .set(value);
    }
}

impl Readiness {
    /// What to say to somebody who asks at this time.
    fn at(&self, now: Instant) -> Result<(), NotReady> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (redis, ledger) = (&seen.redis.look, &seen.ledger.look);
        let (redis, ledger) = redis
            .as_ref()
            .zip(ledger.as_ref())
            .ok_or(NotReady::NotAsked)?;
        let age = now.saturating_duration_since(redis.at.min(ledger.at));
        if age > BELIEVED_FOR {
            return Err(NotReady::Outdated(age));
        }
        let refusals = [
            refusals(&redis.stores),
            seen.redis.of_order("Redis"),
            refusals(&ledger.stores),
            seen.ledger.of_order("the ledger"),
        ];
        match refusals.into_iter().flatten().collect::<Vec<_>>() {
            none if none.is_empty() => Ok(()),
            some => Err(NotReady::Refused(some.join("; "))),
        }
    }

    /// Keeps what a look has seen that began then, and says in log and metrics what has changed.
    fn note(
        &self,
        kind: Kind,
        began: Instant,
        at: Instant,
        stores: HashMap<Store, Option<String>>,
    ) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let side = seen.side(kind);
        side.refused_order.take_if(|(refused, _)| *refused < began);
        let before = side.look.replace(Look { at, stores });
        let before = before.map(|look| look.stores).unwrap_or_default();
        let now = side.look.iter().flat_map(|look| &look.stores);
        for (store, refusal) in now.clone() {
            store.report(f64::from(u8::from(refusal.is_none())));
            let was_refused = before.get(store).is_some_and(Option::is_some);
            match refusal {
                Some(why) if !was_refused => tracing::warn!(%store, why, "store takes no orders"),
                None if was_refused => tracing::info!(%store, "store takes orders again"),
                _ => {}
            }
        }
        let is_gone = |store: &&Store| now.clone().all(|(known, _)| known != *store);
        before
            .keys()
            .filter(is_gone)
            .for_each(|store| store.report(f64::NAN));
    }

    /// Keeps why an order was refused, if a store has said so. A pool that is full, or a server
    /// that was not reached in time, is left to the looks: much traffic may do that to a store that
    /// is well.
    pub(super) fn note_refusal(&self, error: &EngineError) {
        let (kind, why) = match error {
            EngineError::Stock(error) if error.is_refusal() => {
                (Kind::Redis, error.in_words_of_server())
            }
            EngineError::Ledger(error) if error.is_said_by_server() => {
                (Kind::Ledger, in_words_of_database(error))
            }
            _ => return,
        };
        self.note_refused_order(kind, Instant::now(), why);
    }

    fn note_refused_order(&self, kind: Kind, at: Instant, why: String) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.side(kind).refused_order = Some((at, why));
    }
}

impl Side {
    /// The refusal of an order, unless the look says more.
    fn of_order(&self, name: &str) -> Option<String> {
        let (_, why) = self.refused_order.as_ref()?;
        let look = self.look.as_ref()?;
        let is_seen = look.stores.values().any(Option::is_some);
        (!is_seen).then(|| format!("{name} has refused an order: {why}"))
    }
}

/// Every refusal in one line, in the order of the stores.
fn refusals(stores: &HashMap<Store, Option<String>>) -> Option<String> {
    let refused = |(store, why): (&Store, &Option<String>)| Some((store.clone(), why.clone()?));
    let mut refused: Vec<_> = stores.iter().filter_map(refused).collect();
    refused.sort();
    let lines = refused
        .iter()
        .map(|(store, why)| format!("{store} takes no orders: {why}"));
    let lines = lines.collect::<Vec<_>>();
    (!lines.is_empty()).then(|| lines.join("; "))
}

/// The database's own words are in a source of the error.
fn in_words_of_database(error: &LedgerError) -> String {
    let sources = std::iter::successors(Some(error as &dyn std::error::Error), |error| {
        error.source()
    });
    let words: Vec<_> = sources.map(ToString::to_string).collect();
    words.join(": ")
}

impl Engine {
    /// Whether an order could be placed, by the last look at the stores. It calls none.
    pub fn ready(&self) -> Result<(), EngineError> {
        if self.is_draining() {
            return Err(EngineError::Stopping);
        }
        Ok(self.readiness.at(Instant::now())?)
    }

    /// Asks every master and the ledger whether they would write an order, and keeps the answers
    /// for [`Engine::ready`]. It costs one script for each master and one statement.
    pub async fn look_at_stores(&self) {
        join(self.look_at_redis(), self.look_at_ledger()).await;
    }

    /// The same for the masters alone.
    pub(crate) async fn look_at_redis(&self) {
        let began = Instant::now();
        let masters = self.stock.check_writable(ANSWER_WITHIN).await;
        let masters = masters.iter().map(seen).collect();
        self.readiness
            .note(Kind::Redis, began, Instant::now(), masters);
    }

    /// The same for the ledger alone.
    pub(crate) async fn look_at_ledger(&self) {
        let began = Instant::now();
        let ledger = HashMap::from([(Store::Ledger, self.ledger_refusal().await)]);
        self.readiness
            .note(Kind::Ledger, began, Instant::now(), ledger);
    }

    /// Why the ledger takes no order.
    async fn ledger_refusal(&self) -> Option<String> {
        match timeout(ANSWER_WITHIN, self.ledger.check_writable()).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(in_words_of_database(&error)),
            Err(_) => Some(format!("no answer within {ANSWER_WITHIN:?}")),
        }
    }
}

fn seen(check: &WriteCheck) -> (Store, Option<String>) {
    (Store::Redis(check.server.clone()), check.refusal())
}

#[cfg(test)]
mod tests {
    use super::{BELIEVED_FOR, Duration, HashMap, Instant, Kind, NotReady, Readiness, Store};

    /// Notes a look at all stores that began and ended then.
    fn look(readiness: &Readiness, at: Instant, refusals: [Option<&str>; 3]) {
        let [first, second, ledger] = refusals.map(|why| why.map(str::to_owned));
        let masters = [
            (Store::Redis("a:1".into()), first),
            (Store::Redis("b:1".into()), second),
        ];
        readiness.note(Kind::Redis, at, at, HashMap::from(masters));
        readiness.note(
            Kind::Ledger,
            at,
            at,
            HashMap::from([(Store::Ledger, ledger)]),
        );
    }

    fn refused(text: &str) -> Result<(), NotReady> {
        Err(NotReady::Refused(text.into()))
    }

    #[test]
    fn a_process_is_ready_while_its_last_looks_are_young_and_show_no_refusal() {
        let (readiness, start) = (Readiness::default(), Instant::now());
        assert_eq!(readiness.at(start), Err(NotReady::NotAsked));
        look(&readiness, start, [None; 3]);
        assert_eq!(readiness.at(start), Ok(()));
        assert_eq!(readiness.at(start + BELIEVED_FOR), Ok(()));
        let late = BELIEVED_FOR + Duration::from_millis(1);
        assert_eq!(readiness.at(start + late), Err(NotReady::Outdated(late)));
        let ledger = HashMap::from([(Store::Ledger, None)]);
        readiness.note(Kind::Ledger, start + late, start + late, ledger);
        let outdated = Err(NotReady::Outdated(late));
        assert_eq!(
            readiness.at(start + late),
            outdated,
            "nothing is known of Redis"
        );
        look(&readiness, start + late, [None; 3]);
        assert_eq!(readiness.at(start + late), Ok(()));
    }

    #[test]
    fn each_store_that_refuses_is_named_until_the_first_look_without_a_refusal() {
        let (readiness, now) = (Readiness::default(), Instant::now());
        look(
            &readiness,
            now,
            [None, Some("OOM"), Some("it is read-only")],
        );
        let text = "Redis b:1 takes no orders: OOM; the ledger takes no orders: it is read-only";
        assert_eq!(readiness.at(now), refused(text));
        look(&readiness, now, [None; 3]);
        assert_eq!(readiness.at(now), Ok(()));
    }

    #[test]
    fn a_refused_order_counts_at_once_and_until_a_look_that_began_later() {
        let (readiness, start) = (Readiness::default(), Instant::now());
        let (refusal, end) = (
            start + Duration::from_millis(1),
            start + Duration::from_millis(2),
        );
        look(&readiness, start, [None; 3]);
        readiness.note_refused_order(Kind::Redis, refusal, "OOM".into());
        let text = "Redis has refused an order: OOM";
        assert_eq!(readiness.at(refusal), refused(text));
        let masters = HashMap::from([(Store::Redis("a:1".into()), None)]);
        readiness.note(Kind::Redis, start, end, masters);
        assert_eq!(
            readiness.at(end),
            refused(text),
            "the look had begun before"
        );
        look(&readiness, end, [Some("OOM"), None, None]);
        assert_eq!(readiness.at(end), refused("Redis a:1 takes no orders: OOM"));
        look(&readiness, end, [None; 3]);
        assert_eq!(readiness.at(end), Ok(()));
    }
}

//! Whether an order could be placed now, by the last look at the stores.
//!
//! A task looks once a second, whether anybody asks or not ([`crate::watch_stores`]). A request reads
//! what it saw, and calls no store: balancers, supervisors and attackers may ask as often as they like.
//!
//! One refusal makes the process not ready at once, and the first look without one makes it ready.
//! There is no damping here. A balancer that wants some counts answers itself (`fall`, `rise`,
//! `failureThreshold`), and Prometheus waits before it alerts.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures::future::join;
use stock::WriteCheck;
use tokio::time::{Instant, timeout};

use super::{Engine, EngineError};

/// How long a store may take to answer. One that takes longer takes no orders in time either.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// How long the process believes what it saw. It is longer than the time between two looks at stores
/// that never answer.
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

/// What the last look at the stores has shown.
#[derive(Debug, Default)]
pub(crate) struct Readiness(Mutex<Option<Look>>);

#[derive(Debug)]
struct Look {
    at: Instant,
    /// By store: why it takes no order, or `None`.
    stores: HashMap<Store, Option<String>>,
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
        let look = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let look = look.as_ref().ok_or(NotReady::NotAsked)?;
        let age = now.saturating_duration_since(look.at);
        if age > BELIEVED_FOR {
            return Err(NotReady::Outdated(age));
        }
        match refusals(&look.stores) {
            text if text.is_empty() => Ok(()),
            text => Err(NotReady::Refused(text)),
        }
    }

    /// Keeps what was seen, and says in log and metrics what has changed.
    fn note(&self, at: Instant, stores: HashMap<Store, Option<String>>) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = last.replace(Look { at, stores });
        let before = before.map(|look| look.stores).unwrap_or_default();
        let now = last.iter().flat_map(|look| &look.stores);
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
}

/// Every refusal in one line, in the order of the stores.
fn refusals(stores: &HashMap<Store, Option<String>>) -> String {
    let refused = |(store, why): (&Store, &Option<String>)| Some((store.clone(), why.clone()?));
    let mut refused: Vec<_> = stores.iter().filter_map(refused).collect();
    refused.sort();
    let lines = refused
        .iter()
        .map(|(store, why)| format!("{store} takes no orders: {why}"));
    lines.collect::<Vec<_>>().join("; ")
}

impl Engine {
    /// Whether an order could be placed, by the last look at the stores. It calls none.
    pub fn ready(&self) -> Result<(), EngineError> {
        if self.is_draining() {
            return Err(EngineError::Stopping);
        }
        Ok(self.readiness.at(Instant::now())?)
    }

    /// Asks every master and the ledger whether they would write an order, and keeps the answers for
    /// [`Engine::ready`]. It costs one script for each master and one statement.
    pub async fn look_at_stores(&self) {
        let masters = self.stock.check_writable(ANSWER_WITHIN);
        let (masters, ledger) = join(masters, self.ledger_refusal()).await;
        let mut stores: HashMap<_, _> = masters.iter().map(seen).collect();
        stores.insert(Store::Ledger, ledger);
        self.readiness.note(Instant::now(), stores);
    }

    /// Why the ledger takes no order.
    async fn ledger_refusal(&self) -> Option<String> {
        match timeout(ANSWER_WITHIN, self.ledger.check_writable()).await {
            Ok(Ok(())) => None,
            // The database's own words are in a source of the error.
            Ok(Err(error)) => Some(format!("{:#}", anyhow::Error::new(error))),
            Err(_) => Some(format!("no answer within {ANSWER_WITHIN:?}")),
        }
    }
}

fn seen(check: &WriteCheck) -> (Store, Option<String>) {
    (Store::Redis(check.server.clone()), check.refusal())
}

#[cfg(test)]
mod tests {
    use super::{BELIEVED_FOR, Duration, HashMap, Instant, NotReady, Readiness, Store};

    fn stores(refusals: [Option<&str>; 3]) -> HashMap<Store, Option<String>> {
        let [first, second, ledger] = refusals.map(|why| why.map(str::to_owned));
        HashMap::from([
            (Store::Redis("a:1".into()), first),
            (Store::Redis("b:1".into()), second),
            (Store::Ledger, ledger),
        ])
    }

    #[test]
    fn a_process_is_ready_while_its_last_look_is_young_and_shows_no_refusal() {
        let (readiness, start) = (Readiness::default(), Instant::now());
        assert_eq!(readiness.at(start), Err(NotReady::NotAsked));
        readiness.note(start, stores([None; 3]));
        assert_eq!(readiness.at(start), Ok(()));
        assert_eq!(readiness.at(start + BELIEVED_FOR), Ok(()));
        let late = BELIEVED_FOR + Duration::from_millis(1);
        assert_eq!(readiness.at(start + late), Err(NotReady::Outdated(late)));
        readiness.note(start + late, stores([None; 3]));
        assert_eq!(readiness.at(start + late), Ok(()));
    }

    #[test]
    fn each_store_that_refuses_is_named_until_the_first_look_without_a_refusal() {
        let (readiness, now) = (Readiness::default(), Instant::now());
        readiness.note(now, stores([None, Some("OOM"), Some("it is read-only")]));
        let text = "Redis b:1 takes no orders: OOM; the ledger takes no orders: it is read-only";
        assert_eq!(readiness.at(now), Err(NotReady::Refused(text.into())));
        readiness.note(now, stores([None; 3]));
        assert_eq!(readiness.at(now), Ok(()));
    }
}

//! Transitions of orders in batches: the next batch starts when the previous one has committed.
//!
//! A transition locks the row of its segment until commit. Without batches, a hot item needs one
//! commit for each payment; a batch needs one commit for all payments that arrived meanwhile. Each
//! item has its own batches, so an item whose rows are locked, or whose transaction hangs, delays
//! no other item.

use std::{collections::HashSet, sync::Arc, time::Duration};

use domain::{ItemId, Order};
use ledger::{Actors, Ledger, LedgerError, Transition};
use moka::sync::Cache;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::EngineError;

/// Maximum number of transitions in a transaction.
const TRANSITION_BATCH_MAX: usize = 1024;
/// How long an item's batch task is kept after its last transition.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

type Answer = Result<Option<Order>, EngineError>;

struct Request {
    transition: Transition,
    /// The admin whom the journal names.
    admin: Option<Arc<str>>,
    answer: oneshot::Sender<Answer>,
}

/// Senders into the batch tasks, one task for each item. A task ends when its last sender is
/// dropped.
pub(crate) struct Transitions {
    ledger: Arc<dyn Ledger>,
    /// How long a transaction may take before its transitions fail as "outcome unknown".
    batch_timeout: Duration,
    items: Cache<ItemId, mpsc::Sender<Request>>,
}

impl Transitions {
    pub(crate) fn new(ledger: Arc<dyn Ledger>, batch_timeout: Duration) -> Self {
        Self {
            ledger,
            batch_timeout,
            items: Cache::builder()
                .max_capacity(10_000)
                .time_to_idle(IDLE_TIMEOUT)
                .build(),
        }
    }

    /// Makes the transition with the item's next batch. `None`: a concurrent transition was faster.
    /// `admin`: whom the journal names.
    pub(crate) async fn make(&self, transition: Transition, admin: Option<Arc<str>>) -> Answer {
        let (answer, answered) = oneshot::channel();
        let item = self.items.get_with_by_ref(&transition.order.item, || {
            let (sender, receiver) = mpsc::channel(TRANSITION_BATCH_MAX);
            tokio::spawn(work(Arc::clone(&self.ledger), self.batch_timeout, receiver));
            sender
        });
        let request = Request {
            transition,
            admin,
            answer,
        };
        let sent = item.send(request).await;
        // The task is gone only if the runtime shuts down.
        if sent.is_err() {
            Err(ended())
        } else {
            answered.await.unwrap_or_else(|_| Err(ended()))
        }
    }
}

fn ended() -> EngineError {
    EngineError::OutcomeUnknown(Duration::ZERO)
}

async fn work(
    ledger: Arc<dyn Ledger>,
    batch_timeout: Duration,
    mut requests: mpsc::Receiver<Request>,
) {
    let mut batch = Vec::new();
    while requests.recv_many(&mut batch, TRANSITION_BATCH_MAX).await > 0 {
        // After the timeout the senders of the answers are dropped. The callers then answer
        // "outcome unknown", and their clients retry.
        let made = make_all(&*ledger, std::mem::take(&mut batch));
        match timeout(batch_timeout, made).await {
            Ok(None) => {}
            // What came meanwhile would wait as long for the same answer, and time out.
            Ok(Some(refusal)) => {
                while let Ok(request) = requests.try_recv() {
                    let _ = request.answer.send(Err(refused(&refusal)));
                }
            }
            Err(_) => tracing::warn!(
                ?batch_timeout,
                "the ledger did not answer a batch of transitions"
            ),
        }
    }
}

fn refused(refusal: &Arc<EngineError>) -> EngineError {
    EngineError::Unavailable(Arc::clone(refusal))
}

/// Returns why the ledger takes nothing now, if it said so.
async fn make_all(ledger: &dyn Ledger, requests: Vec<Request>) -> Option<Arc<EngineError>> {
    let mut seen = HashSet::new();
    // Two transitions of one order were decided on the same version. The first wins, and the second
    // must read the order again.
    let (requests, late): (Vec<_>, Vec<_>) = requests
        .into_iter()
        .partition(|request| seen.insert(request.transition.order.id));
    for request in late {
        let _ = request.answer.send(Ok(None));
    }
    let actors = requests.iter().filter_map(|request| {
        let admin = request.admin.clone()?;
        Some((request.transition.order.id, admin))
    });
    let actors: Actors = actors.collect();
    let (transitions, answers): (Vec<_>, Vec<_>) = requests
        .into_iter()
        .map(|request| (request.transition, request.answer))
        .unzip();
    match ledger.transition_by(&transitions, &actors).await {
        Ok(orders) => {
            for (answer, order) in answers.into_iter().zip(orders) {
                let _ = answer.send(Ok(order));
            }
            None
        }
        Err(error) if error.is_of_all() => {
            let refusal = Arc::new(EngineError::Ledger(error));
            for answer in answers {
                let _ = answer.send(Err(refused(&refusal)));
            }
            Some(refusal)
        }
        Err(error) => repeat_each(ledger, error, (transitions, &actors), answers).await,
    }
}

/// Retries each transition separately: an error may belong to one of them, and only that caller
/// must get it. It stops when the ledger takes nothing at all: each further one would wait as long
/// for a connection.
async fn repeat_each(
    ledger: &dyn Ledger,
    error: LedgerError,
    (transitions, actors): (Vec<Transition>, &Actors),
    answers: Vec<oneshot::Sender<Answer>>,
) -> Option<Arc<EngineError>> {
    tracing::debug!(
        error = &error as &dyn std::error::Error,
        "a batch of transitions failed"
    );
    // If the batch may have been committed, a refusal of the repeat proves nothing.
    let may_have_committed = !error.proves_unchanged();
    let of_repeat = |repeat: LedgerError| match may_have_committed && repeat.is_retryable() {
        true => EngineError::after_change(repeat),
        false => EngineError::of_change(repeat),
    };
    let mut left = transitions.into_iter().zip(answers);
    while let Some((transition, answer)) = left.next() {
        let made = ledger.transition_by(&[transition], actors).await;
        let made = match made {
            Err(repeat) if repeat.is_of_all() => {
                let refusal = Arc::new(EngineError::Ledger(repeat));
                let error = || match may_have_committed {
                    true => EngineError::ChangeUnknown(Arc::clone(&refusal)),
                    false => refused(&refusal),
                };
                let _ = answer.send(Err(error()));
                for (_, answer) in left {
                    let _ = answer.send(Err(error()));
                }
                return Some(refusal);
            }
            made => made.map(|mut orders| orders.pop().flatten()),
        };
        let _ = answer.send(made.map_err(of_repeat));
    }
    None
}

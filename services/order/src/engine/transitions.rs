//! Transitions of orders in batches: the next batch starts when the previous one has committed.
//!
//! A transition locks the row of its segment until commit. Without batches, a hot item needs one
//! commit for each payment; a batch needs one commit for all payments that arrived meanwhile. Each
//! item has its own batches, so an item whose rows are locked, or whose transaction hangs, delays
//! no other item.

use std::{collections::HashSet, sync::Arc, time::Duration};

use domain::{ItemId, Order};
use ledger::{Ledger, LedgerError, Transition};
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
    pub(crate) async fn make(&self, transition: Transition) -> Answer {
        let (answer, answered) = oneshot::channel();
        let item = self.items.get_with_by_ref(&transition.order.item, || {
            let (sender, receiver) = mpsc::channel(TRANSITION_BATCH_MAX);
            tokio::spawn(work(Arc::clone(&self.ledger), self.batch_timeout, receiver));
            sender
        });
        let sent = item.send(Request { transition, answer }).await;
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
        if timeout(
            batch_timeout,
            make_all(&*ledger, std::mem::take(&mut batch)),
        )
        .await
        .is_err()
        {
            tracing::warn!(
                ?batch_timeout,
                "the ledger did not answer a batch of transitions"
            );
        }
    }
}

async fn make_all(ledger: &dyn Ledger, requests: Vec<Request>) {
    let mut seen = HashSet::new();
    // Two transitions of one order were decided on the same version. The first wins, and the second
    // must read the order again.
    let (requests, late): (Vec<_>, Vec<_>) = requests
        .into_iter()
        .partition(|request| seen.insert(request.transition.order.id));
    for request in late {
        let _ = request.answer.send(Ok(None));
    }
    let (transitions, answers): (Vec<_>, Vec<_>) = requests
        .into_iter()
        .map(|request| (request.transition, request.answer))
        .unzip();
    match ledger.transition(&transitions).await {
        Ok(orders) => {
            for (answer, order) in answers.into_iter().zip(orders) {
                let _ = answer.send(Ok(order));
            }
        }
        Err(error) => fail_each(ledger, error, transitions, answers).await,
    }
}

/// Retries each transition separately: an error may belong to one of them, and only that caller
/// must get it.
async fn fail_each(
    ledger: &dyn Ledger,
    error: LedgerError,
    transitions: Vec<Transition>,
    answers: Vec<oneshot::Sender<Answer>>,
) {
    tracing::debug!(
        error = &error as &dyn std::error::Error,
        "a batch of transitions failed"
    );
    // If the batch may have been committed, a refusal of the repeat proves nothing.
    let of_repeat = |repeat: LedgerError| match error.proves_unchanged() {
        true => EngineError::of_change(repeat),
        false if repeat.is_retryable() => EngineError::ChangeUnknown(repeat),
        false => EngineError::Ledger(repeat),
    };
    for (transition, answer) in transitions.into_iter().zip(answers) {
        let made = ledger
            .transition(&[transition])
            .await
            .map(|mut orders| orders.pop().flatten());
        let _ = answer.send(made.map_err(of_repeat));
    }
}

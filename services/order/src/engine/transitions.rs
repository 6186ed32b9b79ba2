//! The steps of orders, in batches: the next one leaves when the previous one has been committed.
//!
//! A transition locks the row of its segment until it is committed. One at a time, a hot item would pay one commit for each payment;
//! together they pay one for all that came meanwhile. Each item has batches of its own: one whose rows somebody holds, or whose transaction never
//! ends, keeps no other item waiting.

use std::{collections::HashSet, sync::Arc, time::Duration};

use domain::{ItemId, Order};
use ledger::{Ledger, LedgerError, Transition};
use moka::sync::Cache;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::EngineError;

/// The most transitions in a transaction.
const AT_ONCE: usize = 1024;
/// How long an item's batches are kept ready after the last of its transitions.
const IDLE: Duration = Duration::from_secs(60);

type Answer = Result<Option<Order>, EngineError>;

struct Request {
    transition: Transition,
    answer: oneshot::Sender<Answer>,
}

/// The way into the batches. The task behind an item's ends with the last sender.
pub(crate) struct Transitions {
    ledger: Arc<dyn Ledger>,
    /// How long a transaction may take before its outcome is given up as unknown.
    within: Duration,
    items: Cache<ItemId, mpsc::Sender<Request>>,
}

impl Transitions {
    pub(crate) fn new(ledger: Arc<dyn Ledger>, within: Duration) -> Self {
        Self {
            ledger,
            within,
            items: Cache::builder()
                .max_capacity(10_000)
                .time_to_idle(IDLE)
                .build(),
        }
    }

    /// Makes the transition with the item's next batch. `None`: somebody else was faster.
    pub(crate) async fn make(&self, transition: Transition) -> Answer {
        let (answer, answered) = oneshot::channel();
        let item = self.items.get_with_by_ref(&transition.order.item, || {
            let (sender, receiver) = mpsc::channel(AT_ONCE);
            tokio::spawn(work(Arc::clone(&self.ledger), self.within, receiver));
            sender
        });
        let sent = item.send(Request { transition, answer }).await;
        // If the task is gone, the runtime is going.
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

async fn work(ledger: Arc<dyn Ledger>, within: Duration, mut requests: mpsc::Receiver<Request>) {
    let mut batch = Vec::new();
    while requests.recv_many(&mut batch, AT_ONCE).await > 0 {
        // Whoever waited longer than this is answered "unknown" as the answers are dropped, and asks again.
        if timeout(within, make_all(&*ledger, std::mem::take(&mut batch)))
            .await
            .is_err()
        {
            tracing::warn!(?within, "the ledger did not answer a batch of transitions");
        }
    }
}

async fn make_all(ledger: &dyn Ledger, requests: Vec<Request>) {
    let mut seen = HashSet::new();
    // Two steps of one order were decided on the same version: one wins, and the other is to look again.
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

/// An error belongs to one of them, perhaps. Each by itself, so that it is told to whom it concerns.
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
    for (transition, answer) in transitions.into_iter().zip(answers) {
        let made = ledger
            .transition(&[transition])
            .await
            .map(|mut orders| orders.pop().flatten());
        let _ = answer.send(made.map_err(EngineError::from));
    }
}

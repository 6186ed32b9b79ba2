//! The steps of orders, in batches: the next one leaves when the previous one has been committed.
//!
//! A transition locks the row of its segment until it is committed. One at a time, a hot item would pay one commit for each payment;
//! together they pay one for all that came meanwhile.

use std::{collections::HashSet, sync::Arc, time::Duration};

use domain::Order;
use ledger::{Ledger, LedgerError, Transition};
use tokio::sync::{mpsc, oneshot};

use super::EngineError;

/// The most transitions in a transaction.
const AT_ONCE: usize = 1024;

type Answer = Result<Option<Order>, EngineError>;

struct Request {
    transition: Transition,
    answer: oneshot::Sender<Answer>,
}

/// The way into the batches. The task behind it ends with the last of these.
pub(crate) struct Transitions(mpsc::Sender<Request>);

impl Transitions {
    pub(crate) fn new(ledger: Arc<dyn Ledger>) -> Self {
        let (sender, receiver) = mpsc::channel(AT_ONCE);
        tokio::spawn(work(ledger, receiver));
        Self(sender)
    }

    /// Makes the transition with the next batch. `None`: somebody else was faster.
    pub(crate) async fn make(&self, transition: Transition) -> Answer {
        let (answer, answered) = oneshot::channel();
        let sent = self.0.send(Request { transition, answer }).await;
        // If the task is gone, the runtime is going.
        if sent.is_err() { Err(ended()) } else { answered.await.unwrap_or_else(|_| Err(ended())) }
    }
}

fn ended() -> EngineError {
    EngineError::OutcomeUnknown(Duration::ZERO)
}

async fn work(ledger: Arc<dyn Ledger>, mut requests: mpsc::Receiver<Request>) {
    let mut batch = Vec::new();
    while requests.recv_many(&mut batch, AT_ONCE).await > 0 {
        make_all(&*ledger, std::mem::take(&mut batch)).await;
    }
}

async fn make_all(ledger: &dyn Ledger, requests: Vec<Request>) {
    let mut seen = HashSet::new();
    // Two steps of one order were decided on the same version: one wins, and the other is to look again.
    let (requests, late): (Vec<_>, Vec<_>) = requests.into_iter().partition(|request| seen.insert(request.transition.order.id));
    for request in late {
        let _ = request.answer.send(Ok(None));
    }
    let (transitions, answers): (Vec<_>, Vec<_>) = requests.into_iter().map(|request| (request.transition, request.answer)).unzip();
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
async fn fail_each(ledger: &dyn Ledger, error: LedgerError, transitions: Vec<Transition>, answers: Vec<oneshot::Sender<Answer>>) {
    tracing::debug!(error = &error as &dyn std::error::Error, "a batch of transitions failed");
    for (transition, answer) in transitions.into_iter().zip(answers) {
        let made = ledger.transition(&[transition]).await.map(|mut orders| orders.pop().flatten());
        let _ = answer.send(made.map_err(EngineError::from));
    }
}

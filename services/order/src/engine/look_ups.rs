//! Whether the ledger has a cart or an order, for many requests by one statement.
//!
//! A sold-out item refuses thousands of carts a second, and each must be looked up: its buyer may
//! be repeating a cart that is held. After a failover the same holds for orders, until the homes
//! are checked. One of the requests asks for all that wait, so this costs one connection and few
//! statements, however many they are.

use std::{
    collections::HashSet,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
};

use domain::{CartId, OrderId};
use ledger::{Ledger, LedgerError};
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::{Engine, EngineError};

/// Rows that are looked up in one statement.
const AT_ONCE_MAX: usize = 512;

type Answer = Result<bool, Arc<EngineError>>;

/// What can be looked up.
pub(super) trait LookedUp: Copy + Eq + Hash + Send + Sync {
    /// Those of `ids` that the ledger has.
    fn known(
        ledger: &dyn Ledger,
        ids: &[Self],
    ) -> impl Future<Output = Result<Vec<Self>, LedgerError>> + Send;
}

impl LookedUp for CartId {
    async fn known(ledger: &dyn Ledger, ids: &[Self]) -> Result<Vec<Self>, LedgerError> {
        ledger.known_carts(ids).await
    }
}

impl LookedUp for OrderId {
    async fn known(ledger: &dyn Ledger, ids: &[Self]) -> Result<Vec<Self>, LedgerError> {
        let recorded = ledger.recorded_among(ids).await?;
        Ok(recorded.into_iter().map(|(id, _)| id).collect())
    }
}

/// What waits to be looked up.
pub(super) struct LookUps<Id> {
    waiting: Mutex<Vec<(Id, oneshot::Sender<Answer>)>>,
    /// Held by the request that asks for all.
    turn: tokio::sync::Mutex<()>,
}

impl<Id> Default for LookUps<Id> {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }
}

impl<Id: LookedUp> LookUps<Id> {
    /// Whether the ledger has it, at some time after the call.
    pub(super) async fn has(&self, engine: &Engine, id: Id) -> Result<bool, EngineError> {
        loop {
            let (sender, mut answer) = oneshot::channel();
            self.waiting().push((id, sender));
            let _turn = self.turn.lock().await;
            loop {
                match answer.try_recv() {
                    Ok(answer) => return answer.map_err(EngineError::Unavailable),
                    Err(TryRecvError::Empty) => self.ask(engine).await,
                    // The request that asked for this one has ended before the answer.
                    Err(TryRecvError::Closed) => break,
                }
            }
        }
    }

    async fn ask(&self, engine: &Engine) {
        let mut asked = {
            let mut waiting = self.waiting();
            let count = waiting.len().min(AT_ONCE_MAX);
            waiting.drain(..count).collect::<Vec<_>>()
        };
        // The requests of some have ended.
        asked.retain(|(_, sender)| !sender.is_closed());
        let ids: Vec<_> = asked.iter().map(|(id, _)| *id).collect();
        let known = Id::known(&*engine.ledger, &ids).await;
        let known = known.map(HashSet::<_>::from_iter).map_err(|error| {
            let error = EngineError::from(error);
            engine.note_refusal(&error);
            Arc::new(error)
        });
        for (id, sender) in asked {
            let answer = known.as_ref().map(|known| known.contains(&id));
            let _ = sender.send(answer.map_err(Arc::clone));
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<(Id, oneshot::Sender<Answer>)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Whether the ledger has a cart, for many requests by one statement.
//!
//! A sold-out item refuses thousands of carts a second, and each must be looked up: its buyer may be
//! repeating a cart that is held. One of the requests asks for all that wait, so this costs one
//! connection and few statements, however many they are.

use std::sync::{Arc, Mutex, PoisonError};

use domain::CartId;
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::super::{Engine, EngineError};

/// Carts in one statement.
const AT_ONCE_MAX: usize = 512;

type Answer = Result<bool, Arc<EngineError>>;

/// The carts that wait to be looked up.
#[derive(Debug, Default)]
pub(crate) struct CartLookUps {
    waiting: Mutex<Vec<(CartId, oneshot::Sender<Answer>)>>,
    /// Held by the request that asks for all.
    turn: tokio::sync::Mutex<()>,
}

impl CartLookUps {
    /// Whether the ledger has the cart, at some time after the call.
    pub(super) async fn has(&self, engine: &Engine, id: CartId) -> Result<bool, EngineError> {
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
        let known = engine.ledger.known_carts(&ids).await;
        let known = known.map_err(|error| {
            let error = EngineError::from(error);
            engine.note_refusal(&error);
            Arc::new(error)
        });
        for (id, sender) in asked {
            let answer = known.as_ref().map(|known| known.contains(&id));
            let _ = sender.send(answer.map_err(Arc::clone));
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<(CartId, oneshot::Sender<Answer>)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! What all items of a process share.

use std::sync::Arc;

use crate::{
    StockSettings,
    checkpoint::Checkpoints,
    clock::Clock,
    connection::{Bulk, Connection, Operators, Replicated},
    runtime::HomeRuntime,
    script::Transport,
};
use domain::Durability;

/// What the items and their batchers share.
pub(crate) struct Shared {
    pub settings: StockSettings,
    pub connection: Connection,
    pub bulk: Bulk,
    pub operators: Operators,
    pub replicated: Replicated,
    pub clock: Clock,
    pub checkpoints: Arc<Checkpoints>,
    /// What opened the connections, and sends the batches.
    pub runtime: HomeRuntime,
}

impl Shared {
    /// How the reservations of an item of this durability travel.
    pub(crate) fn transport(&self, durability: Durability) -> Transport {
        match durability {
            Durability::Recorded | Durability::Accepted => {
                Transport::Shared(self.connection.clone())
            }
            Durability::Replicated => Transport::Replicated(self.replicated.clone()),
        }
    }
}

//! How the reservations of an item travel: on the connection that all callers share, or on one that
//! waits for the replicas.

use redis::{Cmd, Value};

use crate::{
    StockError,
    connection::{Carrier, Connection, Replicated},
    keys::Keys,
};

/// How the reservations of an item travel.
#[derive(Clone)]
pub(crate) enum Transport {
    /// The reply comes when the script has run.
    Shared(Connection),
    /// The reply comes when enough replicas have confirmed it.
    Replicated(Replicated),
}

impl Carrier for Transport {
    async fn carry(&self, cmd: Cmd, keys: &Keys) -> Result<Value, StockError> {
        match self {
            Self::Shared(connection) => connection.carry(cmd, keys).await,
            Self::Replicated(replicated) => replicated.carry(cmd, keys).await,
        }
    }
}

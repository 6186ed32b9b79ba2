//! A buyer who orders and is not seen again: the hold runs out.

use super::{Kind, PLACE};
use crate::visit::{Step, Visit};

/// A buyer who never pays.
pub const FORGETS: Kind = Kind {
    name: "forgets",
    buy: |visit| Box::pin(buy(visit)),
};

async fn buy(visit: &mut Visit<'_>) -> Step<()> {
    Ok(visit.order(PLACE, 1).await?.map(|_| ()))
}

//! A buyer who wants two units in one order, or none.

use super::Kind;
use crate::visit::{Step, Visit};

/// A buyer of two units.
pub const TWO_UNITS: Kind = Kind {
    name: "two units",
    buy: |visit| Box::pin(buy(visit)),
};

async fn buy(visit: &mut Visit<'_>) -> Step<()> {
    Ok(visit.order("place order for two", 2).await?.map(|_| ()))
}

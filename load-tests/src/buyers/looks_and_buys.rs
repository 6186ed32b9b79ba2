//! A buyer who looks at the item, orders, and polls the order; and somebody else who tries to see it.

use super::{BROWSE, Kind, PLACE, POLL};
use crate::visit::{Step, Visit};

/// A careful buyer.
pub const LOOKS_AND_BUYS: Kind = Kind {
    name: "looks and buys",
    buy: |visit| Box::pin(buy(visit)),
};

async fn buy(visit: &mut Visit<'_>) -> Step<()> {
    if visit.browse(BROWSE).await?.is_none() {
        return Ok(None);
    }
    let Some(asking) = visit.order(PLACE, 1).await? else {
        return Ok(None);
    };
    let Some(mut own) = visit.own(&asking) else {
        return Ok(Some(()));
    };
    for _ in 0..2 {
        if visit.show(POLL, &mut own).await?.is_none() {
            return Ok(None);
        }
    }
    visit.pry("poll a stranger's order", &own).await
}

//! A buyer who pays when the hold is over: the units are had again if there are any, else the money is to be given back.

use super::{Kind, PLACE, POLL};
use crate::visit::{Step, Visit};

/// A buyer who pays too late.
pub const PAYS_LATE: Kind = Kind {
    name: "pays late",
    buy: |visit| Box::pin(buy(visit)),
};

async fn buy(visit: &mut Visit<'_>) -> Step<()> {
    let Some(asking) = visit.order(PLACE, 1).await? else {
        return Ok(None);
    };
    let Some(mut own) = visit.own(&asking) else {
        return Ok(Some(()));
    };
    visit.wait_until_over(&own).await;
    for _ in 0..2 {
        if visit.pay("pay late", &mut own, "late").await?.is_none() {
            return Ok(None);
        }
    }
    visit.show(POLL, &mut own).await
}

//! A buyer who pays; the provider reports the payment twice, as providers do, and some pay a second time by mistake.

use super::{CANCEL, Kind, PAY, PLACE, POLL, REPEAT};
use crate::visit::{Step, Visit};

/// A buyer who pays in time.
pub const PAYS: Kind = Kind {
    name: "pays",
    buy: |visit| Box::pin(buy(visit)),
};

async fn buy(visit: &mut Visit<'_>) -> Step<()> {
    let Some(asking) = visit.order(PLACE, 1).await? else {
        return Ok(None);
    };
    let Some(mut own) = visit.own(&asking) else {
        return Ok(Some(()));
    };
    for _ in 0..2 {
        if visit.pay(PAY, &mut own, "first").await?.is_none() {
            return Ok(None);
        }
    }
    match (visit.dice() >> 32) % 4 {
        0 => {
            visit
                .pay("pay again with another payment", &mut own, "second")
                .await
        }
        1 => visit.cancel(CANCEL, &mut own).await,
        2 => visit.show(POLL, &mut own).await,
        _ => Ok(visit.repeat_of(REPEAT, &asking, &own).await?.map(|_| ())),
    }
}

//! A buyer who pays after the hold has expired. The order gets units again if there are any;
//! otherwise the money must be returned.

use super::{Behavior, PLACE, POLL};
use crate::session::{Session, Step};

/// Pays too late.
pub const PAYS_LATE: Behavior = Behavior {
    name: "pays late",
    run: |session| Box::pin(run(session)),
};

async fn run(session: &mut Session<'_>) -> Step<()> {
    let Some(placed) = session.order(PLACE, 1).await? else {
        return Ok(None);
    };
    let Some(mut own) = session.own(&placed) else {
        return Ok(Some(()));
    };
    session.wait_for_expiry(&own).await;
    for _ in 0..2 {
        if session.pay("pay late", &mut own, "late").await?.is_none() {
            return Ok(None);
        }
    }
    session.show(POLL, &mut own).await
}

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
    let (_, mut own) = session.hold_unit(PLACE).await?;
    session.wait_for_expiry(&own).await;
    for _ in 0..2 {
        session.pay("pay late", &mut own, "late").await?;
    }
    session.show(POLL, &mut own).await
}

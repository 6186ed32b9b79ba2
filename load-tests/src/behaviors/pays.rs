//! A buyer who pays. The provider reports the payment twice, and some buyers pay a second time by
//! mistake.

use super::{Behavior, CANCEL, PAY, PLACE, POLL, REPEAT};
use crate::session::{Session, Step};

/// Pays in time.
pub const PAYS: Behavior = Behavior {
    name: "pays",
    run: |session| Box::pin(run(session)),
};

async fn run(session: &mut Session<'_>) -> Step<()> {
    let (placed, mut own) = session.hold_unit(PLACE).await?;
    for _ in 0..2 {
        session.pay(PAY, &mut own, "first").await?;
    }
    match session.random() % 4 {
        0 => {
            session
                .pay("pay again with another payment", &mut own, "second")
                .await
        }
        1 => session.cancel(CANCEL, &mut own).await,
        2 => session.show(POLL, &mut own).await,
        _ => session.repeat_of(REPEAT, &placed, &own).await,
    }
}

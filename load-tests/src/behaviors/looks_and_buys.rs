//! A buyer who shows the item, orders, and polls the order, which another buyer tries to show.

use super::{BROWSE, Behavior, PLACE, POLL};
use crate::session::{Session, Step};

/// Shows the item and the order around the purchase.
pub const LOOKS_AND_BUYS: Behavior = Behavior {
    name: "looks and buys",
    run: |session| Box::pin(run(session)),
};

async fn run(session: &mut Session<'_>) -> Step<()> {
    session.browse(BROWSE).await?;
    let (_, mut own) = session.hold_unit(PLACE).await?;
    for _ in 0..2 {
        session.show(POLL, &mut own).await?;
    }
    session
        .show_as_stranger("poll a stranger's order", &own)
        .await
}

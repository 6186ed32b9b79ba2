//! A buyer who shows the item, orders, and polls the order, which another buyer tries to show.

use super::{BROWSE, Behavior, PLACE, POLL};
use crate::session::{Session, Step};

/// Shows the item and the order around the purchase.
pub const LOOKS_AND_BUYS: Behavior = Behavior {
    name: "looks and buys",
    run: |session| Box::pin(run(session)),
};

async fn run(session: &mut Session<'_>) -> Step<()> {
    if session.browse(BROWSE).await?.is_none() {
        return Ok(None);
    }
    let Some(placed) = session.order(PLACE, 1).await? else {
        return Ok(None);
    };
    let Some(mut own) = session.own(&placed) else {
        return Ok(Some(()));
    };
    for _ in 0..2 {
        if session.show(POLL, &mut own).await?.is_none() {
            return Ok(None);
        }
    }
    session
        .show_as_stranger("poll a stranger's order", &own)
        .await
}

//! A buyer who tries to change the lines of a cart one by one, and a stranger who tries to see it.

use super::{super::Behavior, PAY_CART, PLACE_CART};
use crate::{
    action::{Action, OrderRef},
    session::{Session, Step},
};

/// Cancels or pays single lines, then pays the cart.
pub const CART_CHANGES_LINES: Behavior = Behavior {
    name: "changes lines of a cart",
    run: |session| Box::pin(run(session)),
};

async fn run(session: &mut Session<'_>) -> Step<()> {
    let (_, mut own) = session.hold_cart(PLACE_CART).await?;
    let change: fn(OrderRef) -> Action = match session.random() % 3 {
        0 => Action::Cancel,
        1 => Action::Refund,
        _ => |order| Action::Pay {
            order,
            payment: format!("{}-alone", order.id),
        },
    };
    let name = "change line of cart alone";
    session.change_lines_alone(name, &own, change).await?;
    session
        .show_cart_as_stranger("poll cart of another buyer", &own)
        .await?;
    session.pay_cart(PAY_CART, &mut own, "first").await
}

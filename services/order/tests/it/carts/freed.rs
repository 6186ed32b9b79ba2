//! When the units of a cart that fails can be bought again.

use super::*;

/// Carts that fail, one after the other.
const CARTS: usize = 50;

/// The answer to a cart comes after its units have returned, so the next order gets them: no buyer
/// has to repeat an order.
#[tested_in(open_each(Options::default().with_instances(2)))]
async fn the_units_of_a_failed_cart_are_free_again_when_it_is_answered(env: Env) {
    let created = (0..2 * CARTS).map(|_| env.create(json!({ "stock": 5 })));
    let mut items = join_all(created).await;
    // Lines take their units by item: the last one refuses the carts.
    items.sort_unstable();
    let sold_out = items.split_off(CARTS);
    for (item, sold_out) in items.iter().zip(&sold_out) {
        env.order(sold_out, "bob", "k", 5).await.is_held();
        // The second instance has not seen the items, so it foresees no refusal.
        let cart = cart_of(&[(item, 5), (sold_out, 1)]);
        let refused = env.post_cart(1, "ann", item, &cart).await;
        assert_eq!(refused.is(409, "sold_out").body["item"], json!(sold_out));
        env.order(item, "eve", "k", 5).await.is_held();
    }
}

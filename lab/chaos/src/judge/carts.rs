//! Compares the histories of the carts with the ledger, and the ledger's carts with their orders:
//! no cart may be half sold.

use std::collections::{BTreeMap, HashMap};

use ::judge::{
    cart::{LineOrder, line_agrees},
    refusals::unexplained,
};
use client::CartState;
use uuid::Uuid;

use crate::{
    history::{CartHistory, CartPlacement},
    ledger_view::{CartRow, OrderRow},
    verdict::Verdict,
};

/// Compares every acknowledgement of a cart with the ledger, and every cart of the ledger with its
/// orders.
pub(super) fn judge(
    histories: &[CartHistory],
    carts: &HashMap<Uuid, CartRow>,
    orders: &HashMap<Uuid, OrderRow>,
    verdict: &mut Verdict,
) {
    for (id, cart) in carts {
        if let Some(difference) = parts(cart, orders) {
            verdict.half_sold += 1;
            let finding = format!("cart {id} is {:?} in parts: {difference}", cart.state);
            verdict.findings.push(finding);
        }
    }
    let mut acknowledged = HashMap::new();
    for cart in histories {
        let CartPlacement::Acknowledged { id, orders } = &cart.placement else {
            continue;
        };
        match carts.get(id) {
            Some(row) => judge_cart(*id, orders, cart, row, verdict),
            None => {
                verdict.lost += cart.acknowledged.len();
                let finding = format!(
                    "cart {id} was acknowledged ({:?}) but is not in the ledger",
                    cart.acknowledged
                );
                verdict.findings.push(finding);
            }
        }
        if let Some(other) = acknowledged.insert(*id, &cart.key) {
            verdict.findings.push(format!(
                "cart {id} was acknowledged for two keys: {} and {other}",
                cart.key
            ));
        }
    }
    let others = carts
        .iter()
        .filter(|(id, _)| !acknowledged.contains_key(*id));
    judge_refusals(histories, others, verdict);
}

/// How the orders of a cart differ from it, if they do.
fn parts(cart: &CartRow, orders: &HashMap<Uuid, OrderRow>) -> Option<String> {
    if cart.state == CartState::Placing {
        return Some("it is still being placed".into());
    }
    let is_whole = cart.lines.iter().all(|line| {
        let order = orders.get(&line.order).map(|order| LineOrder {
            state: order.state,
            is_of_cart: order.buyer == cart.buyer,
            has_its_terms: order.quantity == line.quantity && order.payment == cart.payment,
        });
        line_agrees(cart.state, order)
    });
    (!is_whole || cart.lines.is_empty()).then(|| {
        let orders = cart.lines.iter().map(|line| orders.get(&line.order));
        format!("{cart:?}, its orders are {:?}", orders.collect::<Vec<_>>())
    })
}

fn judge_cart(
    id: Uuid,
    orders: &BTreeMap<String, Uuid>,
    cart: &CartHistory,
    row: &CartRow,
    verdict: &mut Verdict,
) {
    let allowed = cart.allowed();
    let mut lose = |finding: String| {
        verdict.lost += 1;
        verdict.findings.push(finding);
    };
    if !allowed.contains(&row.state) {
        lose(format!(
            "cart {id} is {:?}, expected one of {allowed:?}: acknowledged {:?}, requested {:?}",
            row.state, cart.acknowledged, cart.requested
        ));
    }
    if cart.payment.is_some() && cart.payment != row.payment {
        lose(format!(
            "cart {id} was acknowledged as paid by {:?}, but the ledger has {row:?}",
            cart.payment
        ));
    }
    let found = row.lines.iter().map(|line| (line.item.clone(), line.order));
    let is_same = found.collect::<BTreeMap<_, _>>() == *orders;
    if !is_same || row.units() != cart.units() || row.buyer != cart.buyer {
        lose(format!(
            "cart {id} of {:?} as {orders:?} for {}: the ledger has {row:?}",
            cart.units(),
            cart.buyer
        ));
    }
}

/// Every cart that was ever held must be acknowledged, or its buyer must have one whose outcome is
/// unknown. The ledger does not have the keys, so they are counted by buyer and lines.
fn judge_refusals<'a>(
    histories: &[CartHistory],
    unacknowledged: impl Iterator<Item = (&'a Uuid, &'a CartRow)>,
    verdict: &mut Verdict,
) {
    let may_exist = histories
        .iter()
        .filter(|cart| cart.may_exist_unacknowledged())
        .map(|cart| (&*cart.buyer, cart.units()));
    let found = unacknowledged
        .filter(|(_, row)| row.state != CartState::Failed)
        .map(|(id, row)| ((&*row.buyer, row.units()), (id, row)));
    for (id, row) in unexplained(may_exist, found) {
        verdict.findings.push(format!(
            "cart {id} is in the ledger ({row:?}), although its buyer was refused"
        ));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, HashMap},
        sync::Arc,
    };

    use client::{CartState, OrderState};
    use uuid::Uuid;

    use super::judge;
    use crate::{
        history::{CartHistory, CartPlacement, SaleItem},
        ledger_view::{CartLineRow, CartRow, OrderRow},
        verdict::Verdict,
    };

    const ID: Uuid = Uuid::from_u128(1);
    const ITEMS: [&str; 2] = ["bowl", "vase"];

    fn order_id(line: usize) -> Uuid {
        Uuid::from_u128(10 + line as u128)
    }

    fn history(placement: CartPlacement, acknowledged: &[CartState]) -> CartHistory {
        let item = |id: &str| SaleItem {
            id: id.into(),
            limit: 2,
            ..SaleItem::vase()
        };
        let line = |(number, id): (u32, &str)| (Arc::new(item(id)), 1 + number);
        CartHistory {
            requests: 1,
            placement,
            acknowledged: acknowledged.into(),
            ..CartHistory::new((0..).zip(ITEMS).map(line).collect(), "ann", "k")
        }
    }

    fn acknowledged(states: &[CartState]) -> CartHistory {
        let orders = (0..)
            .zip(ITEMS)
            .map(|(line, item)| (item.to_owned(), order_id(line)));
        let orders: BTreeMap<_, _> = orders.collect();
        history(CartPlacement::Acknowledged { id: ID, orders }, states)
    }

    fn refused(is_final: bool) -> CartHistory {
        let refused = CartPlacement::Refused {
            code: "sold_out".into(),
            item: Some("vase".into()),
            is_final,
        };
        history(refused, &[])
    }

    fn cart(state: CartState) -> CartRow {
        let line = |(number, item): (usize, &str)| CartLineRow {
            order: order_id(number),
            item: item.into(),
            quantity: 1 + number as u64,
        };
        CartRow {
            buyer: "ann".into(),
            state,
            payment: None,
            lines: (0..).zip(ITEMS).map(line).collect(),
        }
    }

    fn orders(states: &[OrderState]) -> HashMap<Uuid, OrderRow> {
        let row = |(number, state): (usize, &OrderState)| {
            let row = OrderRow {
                buyer: "ann".into(),
                quantity: 1 + number as u64,
                state: *state,
                payment: None,
            };
            (order_id(number), row)
        };
        states.iter().enumerate().map(row).collect()
    }

    fn judged(
        histories: &[CartHistory],
        cart: Option<CartRow>,
        orders: &HashMap<Uuid, OrderRow>,
    ) -> Verdict {
        let mut verdict = Verdict::default();
        let carts = cart.map(|cart| (ID, cart)).into_iter().collect();
        judge(histories, &carts, orders, &mut verdict);
        verdict
    }

    #[test]
    fn a_cart_that_is_half_sold_is_found() {
        use OrderState::{Cancelled, Confirmed, Expired, Held, Rejected};
        let table: [(CartState, &[OrderState], bool); 13] = [
            (CartState::Confirmed, &[Confirmed, Confirmed], true),
            (CartState::Confirmed, &[Confirmed, Cancelled], false),
            (CartState::Confirmed, &[Confirmed, Held], false),
            (CartState::Confirmed, &[Confirmed], false),
            (CartState::Cancelled, &[Cancelled, Confirmed], false),
            (CartState::Expired, &[Expired, Expired], true),
            (CartState::Expired, &[Expired, Confirmed], false),
            (CartState::Failed, &[Cancelled, Rejected], true),
            (CartState::Failed, &[Expired], true),
            (CartState::Failed, &[], true),
            (CartState::Failed, &[Cancelled, Held], false),
            (CartState::Failed, &[Confirmed], false),
            (CartState::Placing, &[], false),
        ];
        for (state, lines, good) in table {
            let known = acknowledged(&[CartState::Held]);
            let mut known = vec![known];
            if state == CartState::Confirmed {
                known[0].requested.insert(state);
            }
            if state == CartState::Cancelled {
                known[0].requested.insert(state);
            }
            if matches!(state, CartState::Failed | CartState::Placing) {
                known = vec![refused(true)];
            }
            let verdict = judged(&known, Some(cart(state)), &orders(lines));
            let found = (
                verdict.half_sold,
                verdict.is_good() || verdict.half_sold == 1,
            );
            assert_eq!(found, (usize::from(!good), true), "{state:?} {lines:?}");
        }
    }

    #[test]
    fn a_line_of_another_quantity_buyer_or_payment_is_found() {
        let changes: [fn(&mut OrderRow); 3] = [
            |row| row.quantity = 9,
            |row| row.buyer = "bob".into(),
            |row| row.payment = Some("pay-2".into()),
        ];
        for change in changes {
            let mut orders = orders(&[OrderState::Expired, OrderState::Expired]);
            orders.get_mut(&order_id(1)).map(change).unwrap();
            let known = [acknowledged(&[CartState::Held])];
            let verdict = judged(&known, Some(cart(CartState::Expired)), &orders);
            assert_eq!(verdict.half_sold, 1, "{orders:?}");
        }
    }

    #[test]
    fn an_acknowledged_cart_that_the_ledger_lacks_is_lost() {
        let known = [acknowledged(&[CartState::Held, CartState::Confirmed])];
        let verdict = judged(&known, None, &HashMap::new());
        assert_eq!((verdict.lost, verdict.is_good()), (2, false));
        let failed = judged(&known, Some(cart(CartState::Failed)), &HashMap::new());
        assert_eq!((failed.lost, failed.half_sold), (1, 0));
    }

    #[test]
    fn a_paid_cart_has_its_payment() {
        let paid = |payment: &str| CartHistory {
            payment: Some(payment.into()),
            ..acknowledged(&[CartState::Held, CartState::Confirmed])
        };
        let row = CartRow {
            payment: Some("pay-1".into()),
            ..cart(CartState::Confirmed)
        };
        let mut lines = orders(&[OrderState::Confirmed, OrderState::Confirmed]);
        for line in lines.values_mut() {
            line.payment = Some("pay-1".into());
        }
        assert!(judged(&[paid("pay-1")], Some(row.clone()), &lines).is_good());
        assert_eq!(judged(&[paid("pay-2")], Some(row), &lines).lost, 1);
    }

    #[test]
    fn a_cart_with_other_lines_than_were_acknowledged_is_lost() {
        let known = [acknowledged(&[CartState::Held])];
        let mut row = cart(CartState::Expired);
        row.lines.pop();
        let verdict = judged(&known, Some(row), &orders(&[OrderState::Expired]));
        assert_eq!((verdict.lost, verdict.half_sold), (1, 0));
    }

    #[test]
    fn a_cart_in_the_ledger_of_a_refused_buyer_is_found() {
        let lines = orders(&[OrderState::Expired, OrderState::Expired]);
        let expired = || Some(cart(CartState::Expired));
        let good = |known: &[CartHistory]| judged(known, expired(), &lines).is_good();
        assert!(!good(&[refused(true)]));
        assert!(!good(&[refused(false)]), "only one request was sent");
        let several = |is_final| CartHistory {
            requests: 2,
            ..refused(is_final)
        };
        assert!(good(&[several(false)]), "the other one placed it");
        assert!(!good(&[several(true)]), "a refusal is final for all");
        assert!(good(&[history(CartPlacement::Unknown, &[])]));
    }

    #[test]
    fn a_refused_cart_may_have_taken_the_lines_before_the_one_that_was_refused() {
        let cart = refused(true);
        assert_eq!(
            (cart.may_have_taken("bowl"), cart.may_have_taken("vase")),
            (1, 0)
        );
        let cart = history(CartPlacement::Unknown, &[]);
        assert_eq!(
            (cart.may_have_taken("bowl"), cart.may_have_taken("vase")),
            (1, 2)
        );
        assert_eq!(cart.may_have_taken("jar"), 0);
    }
}

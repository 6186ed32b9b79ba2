//! Compares the histories of the buyers with the order rows of the ledger.

use std::collections::{HashMap, HashSet};

use ::judge::{limit::above_limit, refusals::unexplained};
use client::{Durability, OrderState};
use uuid::Uuid;

use crate::{
    history::{OrderHistory, Placement, SaleItem},
    ledger_view::OrderRow,
    verdict::Verdict,
};

/// Compares every acknowledgement of an item with its order rows, and these with the limit per
/// buyer. `lines` are orders of carts, which have their own judge.
pub(super) fn judge(
    item: &SaleItem,
    histories: &[OrderHistory],
    rows: &HashMap<Uuid, OrderRow>,
    lines: &HashSet<Uuid>,
    redis_may_lose: bool,
    verdict: &mut Verdict,
) {
    let mut acknowledged_orders = HashMap::new();
    for order in histories.iter().filter(|order| order.item.id == item.id) {
        let Placement::Acknowledged(id) = order.placement else {
            continue;
        };
        match rows.get(&id) {
            Some(row) => judge_order(id, order, row, verdict),
            None => judge_absence(id, order, redis_may_lose, verdict),
        }
        if let Some(other) = acknowledged_orders.insert(id, order) {
            verdict.findings.push(format!(
                "{}: order {id} was acknowledged for two keys: {} and {}",
                item.id, order.key, other.key
            ));
        }
    }
    judge_limit(item, rows, verdict);
    // A promoted replica may lack an order and refuse its repeat, while a recorder still commits
    // the order. That hold has expired without a payment.
    let is_allowed =
        |state| state == OrderState::Rejected || (redis_may_lose && state == OrderState::Expired);
    let unacknowledged = rows
        .iter()
        .filter(|(id, row)| !acknowledged_orders.contains_key(id) && !is_allowed(row.state))
        .filter(|(id, _)| !lines.contains(id));
    judge_refusals(item, histories, unacknowledged, verdict);
}

/// Every order in the ledger must be acknowledged, or its buyer must have an order whose outcome is
/// unknown. The ledger does not have the keys, so orders without an acknowledgement are counted by
/// buyer and quantity.
fn judge_refusals<'a>(
    item: &SaleItem,
    histories: &[OrderHistory],
    unacknowledged: impl Iterator<Item = (&'a Uuid, &'a OrderRow)>,
    verdict: &mut Verdict,
) {
    let may_exist = histories
        .iter()
        .filter(|order| order.item.id == item.id && order.may_exist_unacknowledged())
        .map(|order| (&*order.buyer, u64::from(order.quantity)));
    let found = unacknowledged.map(|(id, row)| ((&*row.buyer, row.quantity), (id, row)));
    for (id, row) in unexplained(may_exist, found) {
        verdict.findings.push(format!(
            "{}: order {id} is in the ledger ({row:?}), although its buyer was refused",
            item.id
        ));
    }
}

fn judge_order(id: Uuid, order: &OrderHistory, row: &OrderRow, verdict: &mut Verdict) {
    let (item, allowed) = (&order.item.id, order.allowed());
    if !allowed.contains(&row.state) {
        let (
            OrderRow { state, .. },
            OrderHistory {
                acknowledged,
                requested,
                ..
            },
        ) = (row, order);
        verdict.lost += 1;
        verdict.findings.push(format!(
            "{item}: order {id} is {state:?}, expected one of {allowed:?}: acknowledged {acknowledged:?}, requested {requested:?}"
        ));
    }
    if order.payment.is_some() && order.payment != row.payment {
        verdict.lost += 1;
        verdict.findings.push(format!(
            "{item}: order {id} was acknowledged as paid by {:?}, but the ledger has {row:?}",
            order.payment
        ));
    }
    if row.quantity != u64::from(order.quantity) || row.buyer != order.buyer {
        verdict.lost += 1;
        verdict.findings.push(format!(
            "{item}: order {id} of {} units for {}: the ledger has {row:?}",
            order.quantity, order.buyer
        ));
    }
}

fn judge_absence(id: Uuid, order: &OrderHistory, redis_may_lose: bool, verdict: &mut Verdict) {
    let OrderHistory {
        item, acknowledged, ..
    } = order;
    if redis_may_lose
        && item.durability != Durability::Recorded
        && *acknowledged == [OrderState::Held]
    {
        verdict.lost_by_level += 1;
        return;
    }
    verdict.lost += order.acknowledgements();
    verdict.findings.push(format!(
        "{}: order {id} was acknowledged ({acknowledged:?}) but is not in the ledger",
        item.id
    ));
}

fn judge_limit(item: &SaleItem, rows: &HashMap<Uuid, OrderRow>, verdict: &mut Verdict) {
    let orders = rows
        .values()
        .map(|row| (&*row.buyer, row.state, row.quantity));
    for (buyer, units) in above_limit(item.limit, orders) {
        verdict.oversold += units - u64::from(item.limit);
        verdict.findings.push(format!(
            "{}: {buyer} has {units} units, the limit is {}",
            item.id, item.limit
        ));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{HashMap, HashSet},
        sync::Arc,
    };

    use client::{
        Durability,
        OrderState::{self, *},
    };
    use uuid::Uuid;

    use super::judge;
    use crate::{
        history::{OrderHistory, Placement, SaleItem},
        ledger_view::OrderRow,
        verdict::Verdict,
    };

    const ID: Uuid = Uuid::from_u128(1);

    fn judged(
        durability: Durability,
        acknowledged: &[OrderState],
        row: Option<(OrderState, u64)>,
        redis_may_lose: bool,
    ) -> Verdict {
        let item = Arc::new(SaleItem {
            durability,
            limit: 2,
            ..SaleItem::vase()
        });
        let order = OrderHistory {
            acknowledged: acknowledged.into(),
            ..history_of(&item, "ann", Placement::Acknowledged(ID))
        };
        let row = row.map(|(state, quantity)| OrderRow {
            quantity,
            ..row_of("ann", state)
        });
        let rows = row.into_iter().map(|row| (ID, row)).collect();
        judge_all(&item, &[order], &rows, redis_may_lose)
    }

    fn history_of(item: &Arc<SaleItem>, buyer: &str, placement: Placement) -> OrderHistory {
        OrderHistory {
            requests: 1,
            placement,
            ..OrderHistory::new(item, buyer, "k", 1)
        }
    }

    fn row_of(buyer: &str, state: OrderState) -> OrderRow {
        OrderRow {
            buyer: buyer.into(),
            quantity: 1,
            state,
            payment: None,
        }
    }

    fn judge_all(
        item: &Arc<SaleItem>,
        orders: &[OrderHistory],
        rows: &HashMap<Uuid, OrderRow>,
        redis_may_lose: bool,
    ) -> Verdict {
        let mut verdict = Verdict::default();
        judge(
            item,
            orders,
            rows,
            &HashSet::new(),
            redis_may_lose,
            &mut verdict,
        );
        verdict
    }

    /// The verdict about a buyer with these placements, each after this number of requests, for
    /// whom the ledger has orders in these states.
    fn refused(placements: &[(Placement, u32)], states: &[OrderState]) -> Verdict {
        refused_with(false, placements, states)
    }

    fn refused_with(
        redis_may_lose: bool,
        placements: &[(Placement, u32)],
        states: &[OrderState],
    ) -> Verdict {
        let item = Arc::new(SaleItem::vase());
        let order = |(placement, requests): &(Placement, u32)| OrderHistory {
            requests: *requests,
            ..history_of(&item, "ann", placement.clone())
        };
        let histories: Vec<_> = placements.iter().map(order).collect();
        let rows = states
            .iter()
            .zip(2..)
            .map(|(state, id)| (Uuid::from_u128(id), row_of("ann", *state)))
            .collect();
        judge_all(&item, &histories, &rows, redis_may_lose)
    }

    #[test]
    fn an_order_in_the_ledger_of_a_refused_buyer_is_found() {
        let sold_out = || Placement::Refused("sold_out".into());
        let limit = || Placement::Refused("buyer_limit_reached".into());
        for state in [Held, Confirmed, Expired, Cancelled] {
            assert!(
                !refused(&[(sold_out(), 1)], &[state]).is_good(),
                "{state:?}"
            );
            assert!(!refused(&[(limit(), 1)], &[state]).is_good(), "{state:?}");
        }
        assert!(refused(&[(sold_out(), 1), (limit(), 1)], &[]).is_good());
        assert!(
            refused(&[(sold_out(), 1)], &[Rejected]).is_good(),
            "the ledger refuses an order by rejecting it"
        );
        assert!(
            refused(&[(sold_out(), 2)], &[Expired]).is_good(),
            "the other request may have reserved units"
        );
        assert!(refused(&[(Placement::Unknown, 1)], &[Expired]).is_good());
        assert!(
            refused_with(true, &[(sold_out(), 1)], &[Expired]).is_good()
                && !refused_with(true, &[(sold_out(), 1)], &[Confirmed]).is_good()
        );
        assert!(
            !refused(
                &[(Placement::Unknown, 1), (sold_out(), 1)],
                &[Expired, Expired]
            )
            .is_good(),
            "one of them was refused"
        );
    }

    #[test]
    fn an_order_paid_by_an_unacknowledged_payment_is_found() {
        let item = Arc::new(SaleItem::vase());
        let order = OrderHistory {
            acknowledged: vec![Held, Confirmed],
            payment: Some("pay-1".into()),
            ..history_of(&item, "ann", Placement::Acknowledged(ID))
        };
        for (payment, good) in [(Some("pay-1"), true), (Some("pay-2"), false), (None, false)] {
            let row = OrderRow {
                payment: payment.map(Into::into),
                ..row_of("ann", Confirmed)
            };
            let rows = HashMap::from([(ID, row)]);
            let verdict = judge_all(&item, std::slice::from_ref(&order), &rows, false);
            assert_eq!(
                verdict.is_good(),
                good,
                "{payment:?}: {:?}",
                verdict.findings
            );
        }
    }

    #[test]
    fn an_acknowledged_order_that_the_ledger_lacks_is_lost() {
        for durability in [
            Durability::Recorded,
            Durability::Replicated,
            Durability::Accepted,
        ] {
            assert_eq!(
                judged(durability, &[Held], None, false).lost,
                1,
                "{durability:?}"
            );
            assert_eq!(
                judged(durability, &[Held, Confirmed], None, true).lost,
                2,
                "{durability:?}"
            );
        }
        assert_eq!(judged(Durability::Recorded, &[Held], None, true).lost, 1);
        let verdict = judged(Durability::Accepted, &[Held], None, true);
        assert!(
            verdict.is_good() && verdict.lost_by_level == 1,
            "the durability allows the loss"
        );
    }

    #[test]
    fn an_order_in_a_state_that_contradicts_its_acknowledgement_is_lost() {
        let table = [
            (&[Held][..], Expired, true),
            (&[Held], Held, false),
            (&[Held], Rejected, false),
            (&[Held], Confirmed, false),
            (&[Held, Confirmed], Confirmed, true),
            (&[Held, Confirmed], Expired, false),
            (&[Held, Cancelled], Confirmed, false),
        ];
        for (acknowledged, state, good) in table {
            assert_eq!(
                judged(Durability::Recorded, acknowledged, Some((state, 1)), false).is_good(),
                good,
                "{acknowledged:?} {state:?}"
            );
        }
    }

    #[test]
    fn a_wrong_quantity_and_an_exceeded_limit_are_found() {
        let confirmed = |quantity| {
            let row = Some((Confirmed, quantity));
            judged(Durability::Recorded, &[Held, Confirmed], row, false)
        };
        assert_eq!(confirmed(2).lost, 1);
        assert_eq!(confirmed(4).oversold, 2);
    }
}

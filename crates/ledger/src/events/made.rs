//! The events of a change, from the rows that it has made.

use std::collections::BTreeMap;

use domain::{Cart, CartState, Item, ItemId, ItemState, Order, OrderId, OrderState, Wave};
use serde_json::{Value, json};

use super::{EventKind, NewEvent};
use crate::{LedgerError, NewJournalEntry, convert::parsed};

/// Most orders in one event. A backlog that is recorded at once becomes several events, so that
/// none grows beyond what a webhook's receiver accepts.
pub(crate) const EVENT_ORDERS_MAX: usize = 1000;

impl EventKind {
    fn of_order(state: OrderState) -> Self {
        match state {
            OrderState::Held => Self::OrderHeld,
            OrderState::Confirmed => Self::OrderConfirmed,
            OrderState::Cancelled => Self::OrderCancelled,
            OrderState::Expired => Self::OrderExpired,
            OrderState::RefundDue => Self::OrderRefundDue,
            OrderState::Refunded => Self::OrderRefunded,
            OrderState::Rejected => Self::OrderRejected,
        }
    }

    /// `None`: a cart begins `placing` without an event.
    fn of_cart(state: CartState) -> Option<Self> {
        Some(match state {
            CartState::Placing => return None,
            CartState::Held => Self::CartHeld,
            CartState::Confirmed => Self::CartConfirmed,
            CartState::Cancelled => Self::CartCancelled,
            CartState::Expired => Self::CartExpired,
            CartState::RefundDue => Self::CartRefundDue,
            CartState::Refunded => Self::CartRefunded,
            CartState::Failed => Self::CartFailed,
        })
    }

    fn of_item(state: ItemState) -> Self {
        match state {
            ItemState::Open => Self::ItemOpened,
            ItemState::Paused => Self::ItemPaused,
            ItemState::Closed => Self::ItemClosed,
            ItemState::Archived => Self::ItemArchived,
        }
    }
}

/// Orders that a transaction has moved, by item and kind.
#[derive(Debug, Default)]
pub(crate) struct OrderEvents(BTreeMap<ItemId, BTreeMap<&'static str, (EventKind, Vec<OrderId>)>>);

impl OrderEvents {
    /// Adds orders that the event happened to.
    pub(crate) fn extend(&mut self, item: &ItemId, kind: EventKind, mut orders: Vec<OrderId>) {
        if orders.is_empty() {
            return;
        }
        let kinds = self.0.entry(item.clone()).or_default();
        let (_, known) = kinds
            .entry(kind.as_str())
            .or_insert_with(|| (kind, Vec::new()));
        if known.is_empty() {
            *known = orders;
        } else {
            known.append(&mut orders);
        }
    }

    /// An event for each item and kind, in parts of [`EVENT_ORDERS_MAX`] orders.
    pub(crate) fn into_events(self) -> Vec<NewEvent> {
        let mut events = Vec::new();
        for (item, kinds) in self.0 {
            for (kind, orders) in kinds.into_values() {
                if orders.len() <= EVENT_ORDERS_MAX {
                    events.push(of_orders(&item, kind, orders));
                    continue;
                }
                let parts = orders.chunks(EVENT_ORDERS_MAX);
                events.extend(parts.map(|part| of_orders(&item, kind, part.to_vec())));
            }
        }
        events
    }
}

fn of_orders(item: &ItemId, kind: EventKind, orders: Vec<OrderId>) -> NewEvent {
    NewEvent {
        kind,
        item: item.clone(),
        orders,
        data: Value::Null,
    }
}

/// The events of transitions that were made, from the orders as they are afterwards. A state that
/// comes with a payment gets an event for each order, with the payment.
pub(crate) fn of_transitions<'a>(made: impl Iterator<Item = &'a Order>) -> Vec<NewEvent> {
    let (mut moved, mut single) = (OrderEvents::default(), Vec::new());
    for order in made {
        let kind = EventKind::of_order(order.state);
        match order.state {
            OrderState::Confirmed | OrderState::RefundDue | OrderState::Refunded => {
                single.push(NewEvent {
                    data: json!({ "payment": order.payment }),
                    ..of_orders(&order.item, kind, vec![order.id])
                });
            }
            _ => moved.extend(&order.item, kind, vec![order.id]),
        }
    }
    single.extend(moved.into_events());
    single
}

/// The event of an extended hold, from the order as it is afterwards.
pub(crate) fn of_extension(order: &Order) -> NewEvent {
    NewEvent {
        data: json!({ "expires_at": order.expires_at }),
        ..of_orders(&order.item, EventKind::OrderExtended, vec![order.id])
    }
}

/// The event of a wave, from the item as it is afterwards.
pub(crate) fn of_wave(item: &Item, wave: &Wave) -> NewEvent {
    NewEvent {
        data: json!({ "at": wave.at, "units": wave.units, "stock": item.stock }),
        ..of_orders(&item.id, EventKind::ItemWaveAdded, Vec::new())
    }
}

/// The event of a transition of a cart, from the cart as it is afterwards.
pub(crate) fn of_cart(cart: &Cart) -> Result<Option<NewEvent>, LedgerError> {
    let Some(kind) = EventKind::of_cart(cart.state) else {
        return Ok(None);
    };
    let mut data = json!({ "cart": cart.id });
    if let Some(payment) = &cart.payment {
        data["payment"] = json!(payment);
    }
    if let Some(refusal) = &cart.refusal {
        data["code"] = json!(refusal.reason);
        data["item"] = json!(refusal.item);
    }
    about_cart(cart, kind, data).map(Some)
}

/// The event of extended holds of a cart, from the cart as it is afterwards.
pub(crate) fn of_cart_extension(cart: &Cart) -> Result<NewEvent, LedgerError> {
    let data = json!({ "cart": cart.id, "expires_at": cart.expires_at });
    about_cart(cart, EventKind::CartExtended, data)
}

/// The subject is the cart.
fn about_cart(cart: &Cart, kind: EventKind, data: Value) -> Result<NewEvent, LedgerError> {
    Ok(NewEvent {
        kind,
        item: parsed("carts.id", &cart.id.to_string())?,
        orders: cart.lines.iter().map(|line| line.order).collect(),
        data,
    })
}

/// The event of a new item.
pub(crate) fn of_new_item(item: &Item) -> NewEvent {
    NewEvent {
        data: json!({ "state": item.state, "stock": item.stock }),
        ..of_orders(&item.id, EventKind::ItemCreated, Vec::new())
    }
}

/// The event of a change of an item, if it changed the state.
pub(crate) fn of_item_change(before: &Item, after: &Item) -> Option<NewEvent> {
    (before.state != after.state)
        .then(|| of_orders(&after.id, EventKind::of_item(after.state), Vec::new()))
}

/// The journal's words for a payment that no order can take, for the return of its money, and for a
/// refund that has failed.
pub(crate) const UNMATCHED_PAYMENT: &str = "unmatched_payment";
pub(crate) const PAYMENT_REFUNDED: &str = "payment_refunded";
pub(crate) const REFUND_FAILED: &str = "refund_failed";

/// The event that a journal entry stands for, if any.
pub(crate) fn of_journal_entry(entry: &NewJournalEntry) -> Option<NewEvent> {
    let kind = match &*entry.action {
        UNMATCHED_PAYMENT => EventKind::PaymentUnmatched,
        PAYMENT_REFUNDED => EventKind::PaymentRefunded,
        REFUND_FAILED => EventKind::PaymentRefundFailed,
        _ => return None,
    };
    let order = entry.before["order"].as_str()?.parse().ok()?;
    Some(NewEvent {
        data: entry.after.clone(),
        ..of_orders(&entry.item, kind, vec![order])
    })
}

#[cfg(test)]
mod tests {
    use domain::{ItemId, OrderId};

    use super::{EVENT_ORDERS_MAX, EventKind, OrderEvents};

    #[test]
    fn a_backlog_becomes_several_events_that_name_each_order_once() {
        let item = ItemId::new("vase").unwrap();
        let ids = |from: u16, to: u16| -> Vec<OrderId> {
            let bytes = |n: u16| [[0; 14].as_slice(), &n.to_be_bytes()].concat();
            (from..to)
                .map(|n| OrderId::from_bytes(bytes(n).try_into().unwrap()))
                .collect()
        };
        let mut moved = OrderEvents::default();
        moved.extend(&item, EventKind::OrderHeld, ids(0, 700));
        moved.extend(&item, EventKind::OrderHeld, ids(700, 2300));
        moved.extend(&item, EventKind::OrderRejected, Vec::new());
        let events = moved.into_events();
        let sizes: Vec<_> = events.iter().map(|event| event.orders.len()).collect();
        assert_eq!(sizes, [EVENT_ORDERS_MAX, EVENT_ORDERS_MAX, 300]);
        assert_eq!(
            events
                .into_iter()
                .flat_map(|event| event.orders)
                .collect::<Vec<_>>(),
            ids(0, 2300)
        );
    }
}

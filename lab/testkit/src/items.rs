//! Items, buyers and orders with distinct names.

use std::sync::atomic::{AtomicU32, Ordering};

use domain::{
    BuyerId, Durability, IdempotencyKey, Item, ItemId, ItemState, OrderId, SegmentKey, Window,
};

/// An open item without a purchase limit, whose orders are acknowledged once they are recorded.
pub fn item(id: ItemId, units: u64, segments: u16) -> Item {
    Item {
        id,
        title: "Vase, 花瓶".into(),
        stock: units,
        price: 1999,
        currency: "EUR".into(),
        limit_per_buyer: None,
        segments,
        window: Window::default(),
        hold_seconds: 600,
        max_hold_seconds: 31_536_000,
        max_per_order: None,
        waves: Vec::new(),
        new_price: None,
        durability: Durability::Recorded,
        state: ItemState::Open,
        epoch: 1,
        version: 1,
    }
}

/// An id that no other test of this process uses.
pub fn fresh_item_id() -> ItemId {
    static ITEMS: AtomicU32 = AtomicU32::new(0);
    let number = ITEMS.fetch_add(1, Ordering::Relaxed);
    ItemId::new(format!("item-{number}")).unwrap()
}

/// The n-th buyer.
pub fn buyer(n: usize) -> BuyerId {
    BuyerId::new(format!("buyer-{n}")).unwrap()
}

/// Number of the buyer's home segment.
pub fn home(item: &Item, buyer: &BuyerId) -> u16 {
    u16::try_from(buyer.stable_hash() % u64::from(item.segments)).unwrap()
}

/// The n-th buyer whose home is this segment.
pub fn buyer_at(item: &Item, segment: u16, n: usize) -> BuyerId {
    (0..)
        .map(buyer)
        .filter(|buyer| home(item, buyer) == segment)
        .nth(n)
        .unwrap()
}

/// The id of the order that this buyer places under this idempotency key.
pub fn order_id(item: &Item, buyer: &BuyerId, key: &str) -> OrderId {
    let key = IdempotencyKey::new(key).unwrap();
    OrderId::derive(&item.id, item.id.tag(), buyer, &key)
}

/// Key of a segment of the item.
pub fn segment(item: &Item, segment: u16) -> SegmentKey {
    SegmentKey {
        item: item.id.clone(),
        segment,
    }
}

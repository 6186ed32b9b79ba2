//! Prices: of an item for orders to come, and of an order for good.

use domain::{Change, SegmentConfig};
use jiff::Timestamp;
use ledger::{Changed, ItemChange};
use testkit::{on_both_databases, tested};

use crate::env::{TestEnv, happen, order, segment};

fn to(price: u64) -> ItemChange {
    ItemChange {
        price: Some(price),
        ..ItemChange::default()
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn an_item_keeps_its_first_price_beside_the_new_one(env: &TestEnv) {
    let vase = env.create("vase", 10, 1).await;
    let first = vase.price;
    for (price, new_price) in [(first, None), (450, Some(450)), (first, Some(first))] {
        let changed = env.change_item(&vase.id, &to(price), None, "ann").await;
        let Ok(Changed::Item(changed)) = changed else {
            panic!("{changed:?}");
        };
        assert_eq!((changed.price, changed.new_price), (first, new_price));
        assert_eq!(changed.current_price(), price);
        assert_eq!(env.item(&vase.id).await.unwrap().as_ref(), Some(&changed));
        assert_eq!(SegmentConfig::from(&changed).price, new_price);
    }
    let journal = env.journal(&vase.id, 10).await.unwrap();
    let entries = journal.iter().filter(|entry| entry.entry.action == "price");
    let prices: Vec<_> = entries
        .map(|entry| entry.entry.after["price"].clone())
        .collect();
    assert_eq!(prices, [first, 450]);
    // A repeat of the request that created it is still one.
    assert!(matches!(
        env.create_item(&vase).await,
        Ok(ledger::Created::Same(_))
    ));
}

#[tested(on_both_databases(crate::env::run))]
async fn an_order_is_recorded_with_the_price_of_its_entry(env: &TestEnv) {
    let vase = env.create("vase", 10, 1).await;
    let taken = |n, price| Change::Taken {
        expires_at: Timestamp::from_millisecond(1_800_000_000_000).unwrap(),
        price,
        orders: vec![order(&vase, n, 1)],
    };
    let entries = [taken(0, None), taken(1, Some(450)), taken(2, Some(0))];
    happen(env, &segment(&vase, 0), entries).await;
    for (n, price) in [(0, None), (1, Some(450)), (2, Some(0))] {
        let recorded = env.order(order(&vase, n, 1).id).await.unwrap().unwrap();
        assert_eq!(recorded.price, price);
    }
}

//! Stored values read back unchanged, and each report comes from one snapshot.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use domain::{BuyerId, Change, Entry, Order, OrderState, Quantity, Stated, TakenOrder};
use jiff::Timestamp;
use testkit::{on_both_databases, tested};

use crate::env::{TestEnv, assert_identity, id, opened, order, order_id, record, segment, taken};

#[tested(on_both_databases(crate::env::run))]
async fn a_recorded_order_reads_back_unchanged(env: &TestEnv) {
    let item = env.create_unlimited("vase", 9_000_000, 2).await;
    let buyers = [
        "ann",
        "安娜 \"O'Neill\" \\ ☂",
        &"x".repeat(BuyerId::MAX_LEN),
    ];
    for (n, buyer) in buyers.into_iter().enumerate() {
        let expires_at = Timestamp::from_millisecond(1_763_712_345_001 + 333 * n as i64).unwrap();
        let placed = TakenOrder {
            buyer: BuyerId::new(buyer).unwrap(),
            ..order(&item, n, Quantity::MAX - n as u32)
        };
        let change = Change::Taken {
            price: None,
            expires_at,
            orders: vec![placed.clone()],
        };
        let entry = Entry {
            id: id(2 + n as u64, 0),
            fingerprint: i64::MIN,
            change,
        };
        let entries = if n == 0 {
            vec![opened(&item, 1), entry]
        } else {
            vec![entry]
        };
        record(env, &segment(&item, 1), entries).await;
        let expected = Order {
            id: placed.id,
            item: item.id.clone(),
            segment: 1,
            buyer: placed.buyer,
            quantity: placed.quantity,
            price: None,
            stated: Stated::default(),
            state: OrderState::Held,
            created_at: Some(expires_at - std::time::Duration::from_secs(600)),
            expires_at,
            attempt: 0,
            payment: None,
            cart: None,
            version: 1,
        };
        assert_eq!(env.order(placed.id).await.unwrap(), Some(expected));
    }
    assert_eq!(
        env.segments(&item.id).await.unwrap()[1].anchor,
        Some(i64::MIN)
    );
    assert_eq!(env.order(order_id(&item, 9)).await.unwrap(), None);
}

#[tested(on_both_databases(crate::env::run))]
async fn recorded_among_finds_the_recorded_orders_with_their_states(env: &TestEnv) {
    let item = env.create("vase", 10, 1).await;
    let orders = (0..2000).map(|n| order(&item, n, 1)).collect();
    let recorded = record(
        env,
        &segment(&item, 0),
        vec![opened(&item, 0), taken(id(2, 0), orders)],
    )
    .await;
    let asked: Vec<_> = (0..2500).map(|n| order_id(&item, n)).collect();
    let found = env.recorded_among(&asked).await.unwrap();
    let in_state = |state| {
        found
            .iter()
            .filter(|(_, found)| *found == state)
            .map(|(id, _)| *id)
            .collect::<Vec<_>>()
    };
    assert_eq!(in_state(OrderState::Held), asked[..10]);
    let (mut rejected, mut expected) = (in_state(OrderState::Rejected), recorded.rejected);
    rejected.sort_unstable();
    expected.sort_unstable();
    assert_eq!(
        (found.len(), rejected),
        (2000, expected),
        "the other 500 are not recorded"
    );
    assert_eq!(
        env.recorded_among(&[asked[0].reacquire(1)]).await.unwrap(),
        [],
        "the order has not reached that attempt"
    );
    assert_eq!(env.recorded_among(&[]).await.unwrap(), []);
}

#[tested(on_both_databases(crate::env::run))]
async fn totals_are_one_snapshot(env: &TestEnv) {
    let ledger = env.ledger().await;
    let item = env.create("vase", 100_000, 1).await;
    let (over, moments) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let reader = {
        let (ledger, id, over, moments) = (
            env.ledger().await,
            item.id.clone(),
            Arc::clone(&over),
            Arc::clone(&moments),
        );
        tokio::spawn(async move {
            let mut seen = std::collections::BTreeSet::new();
            while !over.load(Ordering::Relaxed) {
                let totals = ledger.totals(&id).await.unwrap().unwrap();
                assert_identity(&totals);
                seen.insert(totals.segments[0].held);
                moments.store(seen.len(), Ordering::Relaxed);
            }
        })
    };
    record(&ledger, &segment(&item, 0), vec![opened(&item, 0)]).await;
    // The sale continues until the reader has seen several states of it, however rarely the reader
    // is scheduled.
    for batch in 0.. {
        if reader.is_finished() || (batch >= 100 && moments.load(Ordering::Relaxed) > 3) {
            break;
        }
        assert!(
            batch < 2000,
            "the reader saw only {moments:?} states of the sale before it sold out"
        );
        let orders = (0..50).map(|n| order(&item, batch * 50 + n, 1)).collect();
        record(
            &ledger,
            &segment(&item, 0),
            vec![taken(id(2 + batch as u64, 0), orders)],
        )
        .await;
    }
    over.store(true, Ordering::Relaxed);
    reader.await.unwrap();
}

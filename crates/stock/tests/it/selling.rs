//! Who gets what when many want it at once.

use std::sync::Arc;

use domain::{ItemState, Quantity, Window};
use jiff::{SignedDuration, Timestamp};
use stock::{ItemStock, Outcome};
use tokio::task::JoinSet;

use crate::{
    crowd::{all_answered, held, instances, sold_out},
    sale::{self, Sale, Terms, buyer, is_held},
    site::{Site, on_both, tested},
};

#[tested(on_both)]
async fn the_last_unit_is_sold_once(site: Arc<Site>) {
    for round in 0..20 {
        let sale = sale::open(&site, Terms::new(1, 1 + round % 4)).await;
        let reservations = (0..64)
            .map(|n| sale.reservation(&buyer(n), "k", 1))
            .collect();
        let outcomes = all_answered(&[sale.at_first()], reservations).await;
        assert_eq!(
            (held(&outcomes), sold_out(&outcomes)),
            (1, 63),
            "round {round}"
        );
    }
}

/// Each of the workers orders again and again until the item is sold out. Returns the
/// number of orders that it got.
async fn closed_loop(sale: &Arc<Sale>, instances: &[Arc<ItemStock>], workers: usize) -> u64 {
    let mut loops = JoinSet::new();
    for worker in 0..workers {
        let (sale, item) = (
            Arc::clone(sale),
            Arc::clone(&instances[worker % instances.len()]),
        );
        loops.spawn(async move {
            for turn in 0.. {
                match sale
                    .order_at(&item, &buyer(worker + 1000 * turn), "k", 1)
                    .await
                {
                    Outcome::Held {
                        replayed: false, ..
                    } => {}
                    Outcome::SoldOut | Outcome::Shed => return turn as u64,
                    other => panic!("{other:?}"),
                }
            }
            unreachable!()
        });
    }
    loops.join_all().await.into_iter().sum()
}

#[tested(on_both)]
async fn whatever_the_segments_the_stock_is_sold_to_the_last_unit_and_no_further(site: Arc<Site>) {
    for (stock, segments) in [
        (0, 1),
        (0, 3),
        (1, 8),
        (5, 8),
        (9, 8),
        (400, 1),
        (400, 3),
        (401, 8),
    ] {
        let sale = sale::open(&site, Terms::new(stock, segments)).await;
        let instances = instances(&sale, 3).await;
        assert_eq!(
            closed_loop(&sale, &instances, 48).await,
            stock,
            "{segments} segments"
        );
        assert_eq!(sale.available().await, 0);
    }
}

#[tested(on_both)]
async fn retries_of_one_order_at_several_instances_are_one_order(site: Arc<Site>) {
    // The home of the second one is empty, so that its attempts race each other around the ring.
    for (stock, segments, home) in [(10, 3, 0), (1, 3, 2), (2, 4, 3)] {
        let sale = sale::open(&site, Terms::new(stock, segments)).await;
        let (instances, ann) = (instances(&sale, 4).await, sale.buyer_at(home, 0));
        let outcomes = all_answered(
            &instances,
            (0..32).map(|_| sale.reservation(&ann, "k", 1)).collect(),
        )
        .await;
        let first = &outcomes[0];
        assert!(
            outcomes
                .iter()
                .all(|outcome| expiry(outcome) == expiry(first)),
            "{outcomes:?}"
        );
        assert_eq!(sale.available().await, stock - 1);
        let fresh = outcomes
            .iter()
            .filter(|outcome| {
                matches!(
                    outcome,
                    Outcome::Held {
                        replayed: false,
                        ..
                    }
                )
            })
            .count();
        assert_eq!(fresh, 1, "one of them took, the others got its decision");
    }
}

fn expiry(outcome: &Outcome) -> Timestamp {
    match outcome {
        Outcome::Held { expires_at, .. } => *expires_at,
        other => panic!("{other:?}"),
    }
}

#[tested(on_both)]
async fn a_buyer_never_holds_more_than_the_limit(site: Arc<Site>) {
    for home in 0..4 {
        // Half a unit for each segment: every other spillover has to leave home.
        let sale = sale::open(&site, Terms::new(3, 4).limit(2)).await;
        let (instances, ann) = (instances(&sale, 3).await, sale.buyer_at(home, 0));
        let outcomes = all_answered(
            &instances,
            (0..20)
                .map(|n| sale.reservation(&ann, &format!("k{n}"), 1))
                .collect(),
        )
        .await;
        let limited = outcomes
            .iter()
            .filter(|outcome| **outcome == Outcome::BuyerLimitReached)
            .count();
        assert_eq!((held(&outcomes), limited), (2, 18), "{outcomes:?}");
        let again = all_answered(
            &instances,
            (0..20)
                .map(|n| sale.reservation(&ann, &format!("k{n}"), 1))
                .collect(),
        )
        .await;
        assert_eq!(held(&again), 2, "a repeat is not counted again");
    }
}

#[tested(on_both)]
async fn a_spillover_that_ends_sold_out_releases_the_buyers_count(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(3, 3).limit(4)).await;
    let ann = sale.buyer_at(1, 0);
    assert_eq!(
        sale.order(&ann, "too-many", 4).await,
        Outcome::SoldOut,
        "there are three"
    );
    assert_eq!(sale.dump(1).await.buyers.get(ann.as_str()), None);
    assert!(sale.sells(&ann, "one", 1).await);
    assert!(sale.sells(&ann, "two", 1).await);
    assert_eq!(
        sale.order(&ann, "three", 3).await,
        Outcome::BuyerLimitReached
    );
    assert_eq!(sale.dump(1).await.buyers[ann.as_str()], 2);
}

#[tested(on_both)]
async fn a_key_that_is_used_again_for_another_quantity_is_refused(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(4, 2)).await;
    let (ann, bob) = (sale.buyer_at(0, 0), sale.buyer_at(0, 1));
    let reused = |units| Outcome::KeyReused {
        quantity: Quantity::new(units).unwrap(),
    };
    assert!(sale.sells(&ann, "k", 2).await);
    assert_eq!(sale.order(&ann, "k", 1).await, reused(2), "taken at home");
    assert!(sale.sells(&bob, "k", 1).await);
    assert_eq!(sale.order(&bob, "k", 2).await, reused(1), "taken elsewhere");
    assert_eq!(sale.order(&bob, "sold-out", 2).await, Outcome::SoldOut);
    assert_eq!(sale.order(&bob, "sold-out", 1).await, reused(2));
}

#[tested(on_both)]
async fn a_key_reused_during_its_spillover_adds_no_pending_spillover(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(1, 2)).await;
    let ann = sale.buyer_at(1, 0);
    sale.begin_spillover(&ann, "k", 1, sale.now_ms().await + 60_000)
        .await;
    let before = sale.dumps().await;
    // The second request has more time than the first one had, which an attempt of the same order
    // would bring home.
    let reservation = stock::Reservation {
        within: std::time::Duration::from_secs(120),
        ..sale.reservation(&ann, "k", 2)
    };
    assert_eq!(
        sale.at_first().order(reservation).await.unwrap(),
        Outcome::KeyReused {
            quantity: Quantity::ONE
        }
    );
    assert_eq!(sale.dumps().await, before);
}

#[tested(on_both)]
async fn an_order_is_never_filled_in_part(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(3, 3)).await;
    let outcomes = all_answered(
        &[sale.at_first()],
        (0..10)
            .map(|n| sale.reservation(&buyer(n), "k", 4))
            .collect(),
    )
    .await;
    assert_eq!(sold_out(&outcomes), 10);
    assert_eq!(sale.available().await, 3);
}

#[tested(on_both)]
async fn a_retry_after_a_unit_came_back_never_takes_a_second_one(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(1, 3)).await;
    let (ann, bob) = (sale.buyer_at(1, 0), sale.buyer_at(2, 0));
    assert!(
        sale.sells(&ann, "k", 1).await,
        "at segment 0, the last of her ring"
    );
    // He enters; a refusal by the sold-out cache would leave no record, and bind no segment.
    sale.begin_spillover(&bob, "k", 1, sale.now_ms().await + 60_000)
        .await;
    assert_eq!(sale.order(&bob, "k", 1).await, Outcome::SoldOut);
    // Every segment that has declined either of them has a unit again.
    for segment in 0..3 {
        sale.put_back(segment, 1).await;
    }
    for instance in instances(&sale, 3).await {
        assert!(matches!(
            sale.order_at(&instance, &ann, "k", 1).await,
            Outcome::Held { replayed: true, .. }
        ));
        assert_eq!(
            sale.order_at(&instance, &bob, "k", 1).await,
            Outcome::SoldOut,
            "sold out is his permanent decision"
        );
    }
    assert_eq!(sale.available().await, 3);
}

#[tested(on_both)]
async fn an_item_sells_only_while_it_is_open(site: Arc<Site>) {
    let hour = SignedDuration::from_hours(1);
    let (past, future) = (Timestamp::now() - hour, Timestamp::now() + hour);
    let window = |opens_at, closes_at| Window {
        opens_at,
        closes_at,
    };
    let table = [
        (ItemState::Open, window(None, None), true),
        (ItemState::Open, window(Some(past), Some(future)), true),
        (ItemState::Open, window(Some(future), None), false),
        (ItemState::Open, window(None, Some(past)), false),
        (ItemState::Paused, window(Some(past), None), false),
        (ItemState::Closed, window(None, Some(future)), false),
    ];
    for (state, window, sells) in table {
        let sale = sale::open(
            &site,
            Terms {
                state,
                window,
                ..Terms::new(1, 2)
            },
        )
        .await;
        let outcome = sale.order(&sale.buyer_at(0, 0), "k", 1).await;
        let ms = |time: Option<Timestamp>| time.map(Timestamp::as_millisecond);
        match &outcome {
            Outcome::NotOpen {
                state: said,
                opens_at,
                closes_at,
            } => {
                assert_eq!(said, state.as_str());
                assert_eq!(
                    (ms(*opens_at), ms(*closes_at)),
                    (ms(window.opens_at), ms(window.closes_at))
                );
            }
            other => assert!(sells && is_held(other), "{other:?}"),
        }
        assert_eq!(is_held(&outcome), sells, "{state} {window:?}");
    }
}

#[tested(on_both)]
async fn what_an_order_holds_is_found_wherever_it_is(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(1, 3)).await;
    let (ann, bob) = (sale.buyer_at(0, 0), sale.buyer_at(1, 0));
    let find = async |buyer: &domain::BuyerId| {
        sale.at_first()
            .find_unrecorded(sale.order_id(buyer, "k"))
            .await
            .unwrap()
    };
    assert_eq!(find(&bob).await, None);
    let Outcome::Held { expires_at, .. } = sale.order(&bob, "k", 1).await else {
        panic!()
    };
    let order = domain::TakenOrder {
        id: sale.order_id(&bob, "k"),
        buyer: bob.clone(),
        quantity: Quantity::ONE,
    };
    assert_eq!(
        find(&bob).await,
        Some(stock::Unrecorded {
            order,
            segment: 0,
            price: None,
            expires_at
        })
    );
    assert!(sale.order(&ann, "k", 1).await.is_sold_out());
    assert_eq!(find(&ann).await, None);
}

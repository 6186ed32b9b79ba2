//! The buyer's limit is two (`site.rs`), wherever the units were had and whatever home counts.

use std::sync::atomic::{AtomicU64, Ordering};

use domain::{BuyerId, Change, Entry, Item, OrderState, Quantity, SegmentKey, TakenOrder};
use jiff::Timestamp;
use ledger::{ItemChange, Ledger, Mended, SegmentReplay};

use crate::site::{
    Kind, Site, again, counters, happen, id, on_both, order_of, release, segment, state, step, take,
};

on_both!(
    what_strayed_is_held_against_the_limit,
    what_home_took_is_held_against_what_strayed,
    before_the_first_stray_home_is_believed,
    what_strayed_while_it_was_mended_is_a_stray,
    after_a_limit_was_lowered_home_is_not_believed,
    a_stray_that_was_not_recorded_changes_nothing,
    what_is_recorded_together_counts_together,
    what_was_given_back_counts_no_more,
    a_repeat_counts_once,
    a_retake_is_held_against_the_limit,
    what_was_taken_under_a_higher_limit_stays,
    a_limit_that_was_lifted_or_never_was_rejects_nothing,
    of_two_recorders_with_too_much_together_one_records,
);

const SEGMENTS: u16 = 3;

/// An item, its segments with the buyer's home first, and the buyer.
async fn vase(site: &Site, ledger: &dyn Ledger, name: &str) -> (Item, [SegmentKey; 3], BuyerId) {
    item_for(site, ledger, "vase", name).await
}

async fn item_for(
    site: &Site,
    ledger: &dyn Ledger,
    item: &str,
    name: &str,
) -> (Item, [SegmentKey; 3], BuyerId) {
    let item = site.create(ledger, item, 30, SEGMENTS).await;
    let buyer = BuyerId::new(name).unwrap();
    let home = buyer.home(SEGMENTS);
    let ring = [0, 1, 2].map(|step| segment(&item, (home + step) % SEGMENTS));
    for key in &ring {
        happen(ledger, key, []).await.unwrap();
    }
    (item, ring, buyer)
}

async fn rejected(
    ledger: &dyn Ledger,
    key: &SegmentKey,
    orders: impl IntoIterator<Item = TakenOrder>,
) -> usize {
    happen(ledger, key, [take(orders)])
        .await
        .unwrap()
        .rejected
        .len()
}

async fn what_strayed_is_held_against_the_limit(site: &Site) {
    let ledger = site.ledger().await;
    let (item, [home, near, far], ann) = vase(site, &*ledger, "ann").await;
    let bob = (0..)
        .map(|n| BuyerId::new(format!("bob-{n}")).unwrap())
        .find(|bob| bob.home(SEGMENTS) == ann.home(SEGMENTS))
        .unwrap();
    assert_eq!(
        rejected(&*ledger, &home, [order_of(&item, &ann, 0, 1)]).await,
        0
    );
    assert_eq!(
        rejected(
            &*ledger,
            &near,
            [order_of(&item, &ann, 1, 2), order_of(&item, &bob, 0, 2)]
        )
        .await,
        1
    );
    assert_eq!(
        rejected(&*ledger, &near, [order_of(&item, &ann, 2, 1)]).await,
        0,
        "a smaller one is within the limit"
    );
    assert_eq!(
        rejected(
            &*ledger,
            &far,
            [order_of(&item, &ann, 3, 1), order_of(&item, &bob, 1, 1)]
        )
        .await,
        2
    );
    assert_eq!(
        state(&*ledger, order_of(&item, &ann, 1, 2).id).await,
        Some(OrderState::Rejected)
    );
    assert_eq!(
        [
            counters(&*ledger, &near).await,
            counters(&*ledger, &far).await
        ],
        [[7, 3, 0, 0], [10, 0, 0, 0]]
    );
}

/// Home has forgotten what it let go on, and its own history is whole.
async fn what_home_took_is_held_against_what_strayed(site: &Site) {
    let ledger = site.ledger().await;
    let (item, [home, near, _], ann) = vase(site, &*ledger, "ann").await;
    assert_eq!(
        rejected(&*ledger, &near, [order_of(&item, &ann, 0, 1)]).await,
        0
    );
    step(
        &*ledger,
        order_of(&item, &ann, 0, 1).id,
        OrderState::Confirmed,
    )
    .await
    .unwrap();
    assert_eq!(
        rejected(
            &*ledger,
            &home,
            [order_of(&item, &ann, 1, 1), order_of(&item, &ann, 2, 1)]
        )
        .await,
        1
    );
    assert_eq!(
        state(&*ledger, order_of(&item, &ann, 2, 1).id).await,
        Some(OrderState::Rejected),
        "the later one"
    );
}

/// Of what never strayed home has the count and the outbox; if it has lost the one alone, it refuses until it is mended.
async fn before_the_first_stray_home_is_believed(site: &Site) {
    let ledger = site.ledger().await;
    let (item, [home, near, _], ann) = vase(site, &*ledger, "ann").await;
    assert_eq!(
        rejected(&*ledger, &home, [order_of(&item, &ann, 0, 2)]).await,
        0
    );
    assert_eq!(
        rejected(&*ledger, &home, [order_of(&item, &ann, 1, 1)]).await,
        0
    );
    let bob = (0..)
        .map(|n| BuyerId::new(format!("bob-{n}")).unwrap())
        .find(|bob| bob.home(SEGMENTS) != near.segment)
        .unwrap();
    assert_eq!(
        rejected(&*ledger, &near, [order_of(&item, &bob, 0, 1)]).await,
        0,
        "the first stray of the item"
    );
    assert_eq!(
        rejected(&*ledger, &home, [order_of(&item, &ann, 2, 1)]).await,
        1
    );
}

async fn what_strayed_while_it_was_mended_is_a_stray(site: &Site) {
    let ledger = site.ledger().await;
    let (item, [home, near, _], ann) = vase(site, &*ledger, "ann").await;
    ledger.claim_item(&item.id, 5).await.unwrap();
    let mut mending = ledger
        .claim_to_mend(std::slice::from_ref(&near), 5)
        .await
        .unwrap();
    let strayed = Entry {
        id: id(50, 0),
        fingerprint: 1,
        change: take([order_of(&item, &ann, 0, 2)]),
    };
    assert_eq!(mending.stage(&near, &[strayed]).await.unwrap().1.held, 1);
    mending
        .commit(
            &[Mended {
                segment: near,
                checkpoint: id(90, 0),
                anchor: -7,
            }],
            2,
            &[],
        )
        .await
        .unwrap();
    assert_eq!(
        rejected(&*ledger, &home, [order_of(&item, &ann, 1, 1)]).await,
        1
    );
}

/// Home may still have the old one.
async fn after_a_limit_was_lowered_home_is_not_believed(site: &Site) {
    let ledger = site.ledger().await;
    let (item, [home, ..], ann) = vase(site, &*ledger, "ann").await;
    assert_eq!(
        taken_at(&*ledger, &home, 0, order_of(&item, &ann, 0, 1)).await,
        0
    );
    ledger
        .change_item(&item.id, &limit_of(Some(1)), None, "admin")
        .await
        .unwrap();
    assert_eq!(
        taken_at(&*ledger, &home, 1, order_of(&item, &ann, 1, 1)).await,
        1
    );
}

/// What is rolled back has not strayed.
async fn a_stray_that_was_not_recorded_changes_nothing(site: &Site) {
    let ledger = site.ledger().await;
    let (item, [home, near, _], ann) = vase(site, &*ledger, "ann").await;
    let bob = (0..)
        .map(|n| BuyerId::new(format!("bob-{n}")).unwrap())
        .find(|bob| bob.home(SEGMENTS) != near.segment)
        .unwrap();
    let wrong = Change::Adjusted {
        units: 99,
        epoch: 1,
        token: 1,
    };
    happen(
        &*ledger,
        &near,
        [take([order_of(&item, &bob, 0, 1)]), wrong],
    )
    .await
    .unwrap_err();
    assert_eq!(
        rejected(&*ledger, &home, [order_of(&item, &ann, 0, 2)]).await,
        0
    );
    assert_eq!(
        rejected(&*ledger, &home, [order_of(&item, &ann, 1, 1)]).await,
        0,
        "home is still believed"
    );
}

async fn what_is_recorded_together_counts_together(site: &Site) {
    let ledger = site.ledger().await;
    let (item, ring, ann) = vase(site, &*ledger, "ann").await;
    let claim = ledger.claim(&ring, 3).await.unwrap().unwrap();
    let replays = claim
        .rows()
        .iter()
        .zip(0..)
        .map(|(row, key)| SegmentReplay {
            row: row.clone(),
            entries: vec![Entry {
                id: id(100, 0),
                fingerprint: 1,
                change: take([order_of(&item, &ann, key, 1)]),
            }],
        });
    let replays = replays.collect();
    let recorded = claim.record(replays).await.unwrap();
    assert_eq!(
        recorded
            .iter()
            .map(|recorded| recorded.rejected.len())
            .collect::<Vec<_>>(),
        [0, 0, 1]
    );
}

async fn what_was_given_back_counts_no_more(site: &Site) {
    let ledger = site.ledger().await;
    let (item, [_, near, far], ann) = vase(site, &*ledger, "ann").await;
    assert_eq!(
        rejected(&*ledger, &near, [order_of(&item, &ann, 0, 2)]).await,
        0
    );
    assert_eq!(
        rejected(&*ledger, &far, [order_of(&item, &ann, 1, 1)]).await,
        1
    );
    step(
        &*ledger,
        order_of(&item, &ann, 0, 2).id,
        OrderState::Cancelled,
    )
    .await
    .unwrap();
    assert_eq!(
        rejected(&*ledger, &far, [order_of(&item, &ann, 2, 2)]).await,
        0,
        "before its units are back"
    );
    happen(&*ledger, &near, [release([order_of(&item, &ann, 0, 2)])])
        .await
        .unwrap();
}

async fn a_repeat_counts_once(site: &Site) {
    let ledger = site.ledger().await;
    let (item, [_, near, _], ann) = vase(site, &*ledger, "ann").await;
    assert_eq!(
        rejected(&*ledger, &near, [order_of(&item, &ann, 0, 1)]).await,
        0
    );
    let again = happen(
        &*ledger,
        &near,
        [take([
            order_of(&item, &ann, 0, 1),
            order_of(&item, &ann, 1, 1),
        ])],
    )
    .await
    .unwrap();
    assert_eq!(
        (again.repeated, again.held, again.rejected.len()),
        (1, 1, 0)
    );
}

async fn a_retake_is_held_against_the_limit(site: &Site) {
    let ledger = site.ledger().await;
    let (item, [home, near, far], ann) = vase(site, &*ledger, "ann").await;
    let first = order_of(&item, &ann, 0, 2);
    assert_eq!(rejected(&*ledger, &home, [first.clone()]).await, 0);
    step(&*ledger, first.id, OrderState::Expired).await.unwrap();
    assert_eq!(
        rejected(&*ledger, &near, [order_of(&item, &ann, 1, 1)]).await,
        0
    );
    assert_eq!(rejected(&*ledger, &far, [again(first.clone(), 1)]).await, 1);
    assert_eq!(
        state(&*ledger, first.id).await,
        Some(OrderState::Expired),
        "it stays what it was"
    );
    step(
        &*ledger,
        order_of(&item, &ann, 1, 1).id,
        OrderState::Cancelled,
    )
    .await
    .unwrap();
    assert_eq!(rejected(&*ledger, &far, [again(first.clone(), 2)]).await, 0);
    assert_eq!(state(&*ledger, first.id).await, Some(OrderState::Held));
}

fn limit_of(units: Option<u32>) -> ItemChange {
    ItemChange {
        limit_per_buyer: Some(units.map(|units| Quantity::new(units).unwrap())),
        ..ItemChange::default()
    }
}

/// By the outbox's clock: a day ago, and in a day.
async fn taken_at(ledger: &dyn Ledger, key: &SegmentKey, hours: i64, order: TakenOrder) -> usize {
    let ms = Timestamp::now().as_millisecond() + hours * 3_600_000;
    // Several may be taken in one millisecond.
    static TAKEN: AtomicU64 = AtomicU64::new(0);
    let seq = TAKEN.fetch_add(1, Ordering::Relaxed);
    let entry = Entry {
        id: id(ms.unsigned_abs(), seq),
        fingerprint: 1,
        change: take([order]),
    };
    crate::site::record(ledger, key, vec![entry])
        .await
        .unwrap()
        .rejected
        .len()
}

async fn what_was_taken_under_a_higher_limit_stays(site: &Site) {
    let ledger = site.ledger().await;
    let (item, [_, near, far], ann) = vase(site, &*ledger, "ann").await;
    for units in [Some(5), Some(3), Some(1)] {
        ledger
            .change_item(&item.id, &limit_of(units), None, "admin")
            .await
            .unwrap();
    }
    assert_eq!(
        taken_at(&*ledger, &near, -24, order_of(&item, &ann, 0, 3)).await,
        0
    );
    assert_eq!(
        taken_at(&*ledger, &near, 0, order_of(&item, &ann, 1, 3)).await,
        1,
        "five was the most that it was"
    );
    assert_eq!(
        taken_at(&*ledger, &near, 0, order_of(&item, &ann, 2, 2)).await,
        0,
        "some may not have heard of it yet"
    );
    let bob = BuyerId::new("bob-1").unwrap();
    let stray = [near, far]
        .into_iter()
        .find(|key| key.segment != bob.home(SEGMENTS))
        .unwrap();
    assert_eq!(
        taken_at(&*ledger, &stray, 24, order_of(&item, &bob, 0, 2)).await,
        1
    );
    assert_eq!(
        taken_at(&*ledger, &stray, 25, order_of(&item, &bob, 1, 1)).await,
        0
    );
}

async fn a_limit_that_was_lifted_or_never_was_rejects_nothing(site: &Site) {
    let ledger = site.ledger().await;
    let (item, [home, near, far], ann) = vase(site, &*ledger, "ann").await;
    ledger
        .change_item(&item.id, &limit_of(None), None, "admin")
        .await
        .unwrap();
    assert_eq!(
        taken_at(&*ledger, &near, 0, order_of(&item, &ann, 0, 9)).await,
        0
    );
    ledger
        .change_item(&item.id, &limit_of(Some(1)), None, "admin")
        .await
        .unwrap();
    assert_eq!(
        taken_at(&*ledger, &home, 24, order_of(&item, &ann, 3, 1)).await,
        1,
        "what strayed while there was no limit counts"
    );
    assert_eq!(
        taken_at(&*ledger, &far, 0, order_of(&item, &ann, 1, 9)).await,
        0,
        "taken before anybody had heard of the limit"
    );
    assert_eq!(
        taken_at(&*ledger, &far, 24, order_of(&item, &ann, 2, 1)).await,
        1
    );
}

/// Each by itself would be within the limit. Of each item it is the first stray.
async fn of_two_recorders_with_too_much_together_one_records(site: &Site) {
    let ledger = site.ledger().await;
    let rounds = if site.kind == Kind::Postgres { 40 } else { 5 };
    for round in 0..rounds {
        let (item, [home, near, far], ann) = item_for(
            site,
            &*ledger,
            &format!("vase-{round}"),
            &format!("ann-{round}"),
        )
        .await;
        // One order strayed, the other strayed or did not.
        let other = if round % 2 == 0 { home } else { far };
        let [first, second] = [(&near, 0), (&other, 1)].map(|(key, n)| {
            let order = order_of(&item, &ann, n, 2);
            async move { rejected(&*site.ledger().await, key, [order]).await }
        });
        let (first, second) = tokio::join!(first, second);
        // Home came first, and its order is the one that the ledger has when the stray is held against the limit; or the other way round.
        assert_eq!(first + second, 1, "round {round}");
    }
}

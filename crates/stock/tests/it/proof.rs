//! "Sold out" is said only if the item had too few free units, wherever these were: behind the
//! order, on their way, or in fragments.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use domain::{ItemState, TransferId};
use stock::{InspectionEntries, Outcome, Reservation, StockError, StockSettings};
use tokio::{task::JoinSet, time::Instant};

use crate::{
    crowd::instances,
    sale::{self, Sale, Terms, buyer, eventually, is_held},
    site::{Site, on_both, tested},
};

fn within(ms: u64, reservation: Reservation) -> Reservation {
    Reservation {
        within: Duration::from_millis(ms),
        ..reservation
    }
}

#[tested(on_both)]
async fn a_unit_that_came_back_behind_an_order_is_found_in_another_round(site: Arc<Site>) {
    for back_at in 0..3 {
        let sale = sale::open(&site, Terms::new(0, 3).limit(1)).await;
        let ann = sale.buyer_at(1, 0);
        let deadline = sale.now_ms().await + 60_000;
        // Her ring is 1, 2, 0.
        sale.begin_spillover(&ann, "k", 1, deadline).await;
        for segment in [2, 0] {
            let declined = sale.continue_spillover(segment, &ann, "k", 1, deadline);
            assert_eq!(declined.await, "d");
        }
        sale.put_back(back_at, 1).await;
        assert!(sale.sells(&ann, "k", 1).await);
        let again = sale.order(&ann, "k", 1).await;
        assert!(matches!(again, Outcome::Held { replayed: true, .. }));
        assert_eq!(sale.available().await, 0);
        assert_eq!(sale.dump(1).await.buyers[ann.as_str()], 1);
    }
}

#[tested(on_both)]
async fn a_unit_that_comes_back_in_each_round_is_found_wherever_it_is(site: Arc<Site>) {
    // Another buyer takes the unit before the order reaches it, and gives it back behind it.
    let sale = sale::open(&site, Terms::new(0, 3)).await;
    let ann = sale.buyer_at(1, 0);
    let deadline = sale.now_ms().await + 60_000;
    sale.begin_spillover(&ann, "k", 1, deadline).await;
    for (round, segments) in [(0, [2, 0].as_slice()), (1, &[1, 2, 0]), (2, &[1, 2])] {
        for segment in segments {
            let declined = match round {
                0 => {
                    sale.continue_spillover(*segment, &ann, "k", 1, deadline)
                        .await
                }
                _ => {
                    sale.reserve_again(*segment, &ann, "k", round, deadline)
                        .await
                }
            };
            assert_eq!(declined, "d", "round {round}, segment {segment}");
        }
    }
    // Home has declined round 2, and segment 0 only round 1. A late ask of an earlier round takes
    // nothing.
    sale.put_back(0, 1).await;
    let late = sale.reserve_again(0, &ann, "k", 1, deadline).await;
    assert!(late.starts_with("a D"), "{late}");
    assert!(sale.sells(&ann, "k", 1).await);
    assert_eq!(sale.available().await, 0);
}

/// Takes all units out of a segment. Returns the transfer, and how many left.
async fn take_out(sale: &Sale, from: u16) -> (TransferId, u64) {
    let transfer = TransferId::random();
    let units = sale
        .stock
        .transfer_out(&sale.segment(from), transfer, 1000, 1)
        .await
        .unwrap();
    (transfer, units)
}

async fn put_in(sale: &Sale, to: u16, (transfer, units): (TransferId, u64)) {
    let segment = sale.segment(to);
    let arrived = sale.stock.transfer_in(&segment, transfer, units, 1).await;
    assert_eq!(arrived.unwrap(), units);
}

async fn settle(sale: &Sale, from: u16) {
    let segments = sale.at_first().inspect(InspectionEntries::None).await;
    let left = segments.unwrap()[usize::from(from)].left;
    let segment = sale.segment(from);
    assert!(sale.stock.settle_transfers(&segment, left).await.unwrap());
}

/// The order waits for the unit that a transfer moves meanwhile, and gets it.
async fn gets_the_unit_on_its_way(sale: &Arc<Sale>, order: Reservation) {
    let moved = take_out(sale, 0).await;
    let waiting = tokio::spawn({
        let sale = Arc::clone(sale);
        async move { sale.at_first().order(order).await }
    });
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert!(!waiting.is_finished());
    put_in(sale, 1, moved).await;
    assert!(is_held(&waiting.await.unwrap().unwrap()));
}

#[tested(on_both)]
async fn a_unit_on_its_way_is_waited_for(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(1, 2)).await;
    let order = sale.reservation(&sale.buyer_at(1, 0), "k", 1);
    gets_the_unit_on_its_way(&sale, order).await;
}

#[tested(on_both)]
async fn a_unit_on_its_way_is_waited_for_by_an_order_that_every_segment_has_declined(
    site: Arc<Site>,
) {
    let sale = sale::open(&site, Terms::new(1, 2)).await;
    let ann = sale.buyer_at(1, 0);
    let deadline = sale.now_ms().await + 60_000;
    sale.begin_spillover(&ann, "k", 1, deadline).await;
    gets_the_unit_on_its_way(&sale, sale.reservation(&ann, "k", 1)).await;
}

#[tested(on_both)]
async fn a_transfer_that_is_not_settled_delays_the_refusal(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(1, 2)).await;
    let moved = take_out(&sale, 0).await;
    put_in(&sale, 1, moved).await;
    assert!(sale.sells(&buyer(0), "k", 1).await);
    let waiting = tokio::spawn({
        let sale = Arc::clone(&sale);
        async move { sale.try_order(&buyer(1), "k", 1).await }
    });
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert!(
        !waiting.is_finished(),
        "the unit that left may not have arrived yet"
    );
    settle(&sale, 0).await;
    assert!(waiting.await.unwrap().unwrap().is_sold_out());
}

#[tested(on_both)]
async fn a_late_settlement_does_not_hide_units_on_their_way(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(2, 2)).await;
    let moved = take_out(&sale, 0).await;
    put_in(&sale, 1, moved).await;
    let segments = sale.at_first().inspect(InspectionEntries::None).await;
    let earlier = segments.unwrap()[0].left;
    sale.put_back(0, 1).await;
    take_out(&sale, 0).await;
    let segment = sale.segment(0);
    let settled = sale.stock.settle_transfers(&segment, earlier).await;
    assert!(!settled.unwrap(), "a unit has left since");
    assert_eq!(sale.dump(0).await.stock["leaving"], "2");
}

#[tested(on_both)]
async fn units_in_fragments_are_not_called_sold_out(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(2, 2)).await;
    let order = within(300, sale.reservation(&buyer(0), "k", 2));
    let outcome = sale.at_first().order(order).await;
    assert!(
        matches!(outcome, Err(StockError::OutcomeUnknown(_))),
        "{outcome:?}"
    );
    // They are brought together.
    let waiting = tokio::spawn({
        let order = sale.reservation(&buyer(0), "k", 2);
        let sale = Arc::clone(&sale);
        async move { sale.at_first().order(order).await }
    });
    let moved = take_out(&sale, 0).await;
    put_in(&sale, 1, moved).await;
    settle(&sale, 0).await;
    assert!(is_held(&waiting.await.unwrap().unwrap()));
}

#[tested(on_both)]
async fn an_order_that_is_given_up_may_be_placed_again(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(2, 2).limit(2)).await;
    let ann = sale.buyer_at(1, 0);
    let order = || sale.reservation(&ann, "k", 2);
    let outcome = sale.at_first().order(within(200, order())).await;
    assert!(matches!(outcome, Err(StockError::OutcomeUnknown(_))));
    let id = sale.order_id(&ann, "k");
    eventually("giving the order up", async || {
        sale.at_first().settle_spillovers().await.unwrap();
        let home = sale.dump(1).await;
        let decision = home.decision(id).unwrap_or("-");
        decision.starts_with('N') || decision == "-"
    })
    .await;
    assert_eq!(sale.dump(1).await.buyers.get(ann.as_str()), None);
    eventually("the worker forgetting it", async || {
        sale.at_first().settle_spillovers().await.unwrap();
        sale.dump(1).await.decision(id).is_none()
    })
    .await;
    sale.put_back(0, 1).await;
    assert!(is_held(&sale.at_first().order(order()).await.unwrap()));
}

#[tested(on_both)]
async fn an_order_that_is_given_up_goes_on_at_once_when_it_is_placed_again(site: Arc<Site>) {
    for back_at in 0..2 {
        // An order that waited for the margin would wait for an hour.
        let settings = StockSettings {
            forget_margin: Duration::from_secs(3600),
            ..site.settings()
        };
        let instance = site.instance_with(settings).await;
        let sale = sale::open_with(&site, Terms::new(2, 2).limit(1), instance).await;
        let ann = sale.buyer_at(1, 0);
        give_up_in_a_pause(&sale, &ann).await;
        let paused = sale.order(&ann, "k", 1).await;
        assert!(matches!(paused, Outcome::NotOpen { .. }), "{paused:?}");
        let (_, units) = take_out(&sale, 1 - back_at).await;
        assert!(units > 0);
        sale.set_state(ItemState::Open, 3).await.unwrap();
        assert!(sale.sells(&ann, "k", 1).await);
        let again = sale.order(&ann, "k", 1).await;
        assert!(matches!(again, Outcome::Held { replayed: true, .. }));
        assert_eq!(sale.dump(1).await.buyers[ann.as_str()], 1);
        let second = sale.order(&ann, "k2", 1).await;
        assert!(matches!(second, Outcome::BuyerLimitReached), "{second:?}");
    }
}

/// Every segment has declined the order, and home has given it up. There are units by then.
async fn give_up_in_a_pause(sale: &Sale, ann: &domain::BuyerId) {
    let deadline = sale.now_ms().await + 3_600_000;
    let moved = [take_out(sale, 0).await, take_out(sale, 1).await];
    sale.begin_spillover(ann, "k", 1, deadline).await;
    assert_eq!(sale.continue_spillover(0, ann, "k", 1, deadline).await, "d");
    sale.set_state(ItemState::Paused, 2).await.unwrap();
    let outcome = sale.order(ann, "k", 1).await;
    assert!(matches!(outcome, Outcome::NotOpen { .. }), "{outcome:?}");
    let given_up = sale.dump(1).await;
    let id = sale.order_id(ann, "k");
    assert!(
        given_up
            .decision(id)
            .is_some_and(|stored| stored.starts_with('N'))
    );
    for (to, moved) in [1, 0].into_iter().zip(moved) {
        put_in(sale, to, moved).await;
    }
}

#[tested(on_both)]
async fn an_order_whose_round_home_has_lost_is_sold_out(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(0, 2)).await;
    let (ann, deadline) = (sale.buyer_at(1, 0), sale.now_ms().await + 60_000);
    sale.begin_spillover(&ann, "k", 1, deadline).await;
    assert_eq!(
        sale.continue_spillover(0, &ann, "k", 1, deadline).await,
        "d"
    );
    for segment in [1, 0] {
        assert_eq!(
            sale.reserve_again(segment, &ann, "k", 1, deadline).await,
            "d"
        );
    }
    // A failover loses the last write at home.
    let mut lose = redis::cmd("HSET");
    lose.arg(sale.names(1).decisions)
        .arg(&sale.order_id(&ann, "k").as_bytes()[..])
        .arg(format!("D1:{deadline}"));
    let _: i64 = sale.redis(&lose).await;
    let outcome = sale.try_order(&ann, "k", 1).await;
    assert!(outcome.unwrap().is_sold_out());
}

#[tested(on_both)]
async fn an_item_that_is_paused_during_a_spillover_is_not_called_sold_out(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(2, 2)).await;
    let ann = sale.buyer_at(1, 0);
    let deadline = sale.now_ms().await + 60_000;
    let moved = take_out(&sale, 1).await;
    sale.begin_spillover(&ann, "k", 1, deadline).await;
    put_in(&sale, 0, moved).await;
    sale.set_state(ItemState::Paused, 2).await.unwrap();
    for _ in 0..2 {
        let outcome = sale.order(&ann, "k", 1).await;
        assert!(
            matches!(&outcome, Outcome::NotOpen { state, .. } if state == "paused"),
            "{outcome:?}"
        );
    }
}

/// Moves all units of one segment after the other to the next one, until it is told to stop.
async fn move_units(sale: &Sale, stop: &AtomicBool) {
    for turn in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let segments = sale.item.segments;
        let (from, to) = (turn % segments, (turn + 1) % segments);
        let moved = take_out(sale, from).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
        put_in(sale, to, moved).await;
        settle(sale, from).await;
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

#[tested(on_both)]
async fn as_many_buyers_as_units_all_get_one_while_units_move(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(120, 4)).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mover = tokio::spawn({
        let (sale, stop) = (Arc::clone(&sale), Arc::clone(&stop));
        async move { move_units(&sale, &stop).await }
    });
    let (instances, mut orders) = (instances(&sale, 2).await, JoinSet::new());
    for n in 0..120 {
        let item = Arc::clone(&instances[n % 2]);
        let order = sale.reservation(&buyer(n), "k", 1);
        orders.spawn(async move { item.order(order).await.unwrap() });
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let outcomes = orders.join_all().await;
    stop.store(true, Ordering::Relaxed);
    mover.await.unwrap();
    let refused = outcomes.iter().filter(|outcome| !is_held(outcome)).count();
    assert_eq!(refused, 0, "there is a unit for each");
}

/// Units that may be taken, over time: of each order from its request until its refusal, or until
/// its unit has been released.
#[derive(Default)]
struct Claims(Mutex<(i64, BTreeMap<Instant, i64>)>);

impl Claims {
    fn change(&self, by: i64) -> Instant {
        let mut claims = self.0.lock().unwrap();
        let now = Instant::now();
        claims.0 += by;
        let (now_claimed, history) = (claims.0, &mut claims.1);
        // Two changes at one instant: the higher number counts.
        let at = history.entry(now).or_insert(now_claimed);
        *at = now_claimed.max(*at);
        now
    }

    /// The most units that may have been taken at one instant from `since` until now.
    fn most_since(&self, since: Instant) -> i64 {
        let claims = self.0.lock().unwrap();
        let before = claims.1.range(..=since).next_back();
        let later = claims.1.range(since..).map(|(_, claimed)| *claimed);
        later
            .chain(before.map(|(_, claimed)| *claimed))
            .max()
            .unwrap_or(0)
    }
}

/// Buyers take and give back as fast as they can, three more of them than there are units. A buyer
/// hears "sold out" only if no unit can have been free.
#[tested(on_both)]
async fn no_buyer_hears_sold_out_while_units_are_free(site: Arc<Site>) {
    const UNITS: u64 = 6;
    const CACHE_TTL: Duration = Duration::from_millis(100);
    let sale = sale::open(&site, Terms::new(UNITS, 3)).await;
    let (claims, instances) = (Arc::new(Claims::default()), instances(&sale, 2).await);
    let mut buyers = JoinSet::new();
    for number in 0..UNITS as usize + 3 {
        let (sale, claims) = (Arc::clone(&sale), Arc::clone(&claims));
        let item = Arc::clone(&instances[number % 2]);
        buyers.spawn(async move {
            let (mut wrong, mut refused) = (0, 0);
            for turn in 0..60 {
                let who = buyer(number);
                let key = format!("k{turn}");
                let begun = claims.change(1);
                let outcome = item.order(sale.reservation(&who, &key, 1)).await.unwrap();
                if outcome.is_sold_out() {
                    refused += 1;
                    // Its own claim does not count.
                    let most = claims.most_since(begun - CACHE_TTL) - 1;
                    wrong += usize::from(most < UNITS.cast_signed());
                } else {
                    assert!(is_held(&outcome), "{outcome:?}");
                    give_back(&sale, &item, &who, &key).await;
                }
                claims.change(-1);
                // Sometimes there are fewer buyers than units.
                tokio::time::sleep(Duration::from_millis((turn * 7 + number as u64) % 11)).await;
            }
            (wrong, refused)
        });
    }
    let outcomes = buyers.join_all().await;
    let wrong: usize = outcomes.iter().map(|(wrong, _)| wrong).sum();
    let refused: i32 = outcomes.iter().map(|(_, refused)| refused).sum();
    println!("{refused} refusals");
    assert_eq!(wrong, 0, "of {refused} refusals");
    assert_eq!(sale.available().await, UNITS);
}

/// Releases what the order has, wherever that is.
async fn give_back(sale: &Sale, item: &stock::ItemStock, who: &domain::BuyerId, key: &str) {
    let id = sale.order_id(who, key);
    let found = item.find_unrecorded(id).await.unwrap().unwrap();
    let release = sale.to_return(who, key, 1, found.segment);
    assert_eq!(item.release(&[release]).await.unwrap(), 1);
}

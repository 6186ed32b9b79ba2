//! What an item that is empty, or almost, costs; and that it does not turn away whom it should not.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use domain::ItemState;
use stock::{Outcome, StateSet};
use tokio::task::JoinSet;

use crate::{
    crowd::{all_answered, held, instances, sold_out},
    sale::{self, Sale, Terms, buyer, eventually, is_held},
    site::{Site, on_both, on_own_server, tested},
};

async fn sold_out_sale(site: &Arc<Site>, stock: u64, segments: u16) -> Arc<Sale> {
    let sale = sale::open(site, Terms::new(stock, segments).limit(1)).await;
    for n in 0..stock {
        assert!(
            sale.sells(&buyer(usize::try_from(n).unwrap()), "k", 1)
                .await
        );
    }
    sale
}

/// Fresh buyers, none of whom may get anything.
async fn refuse(sale: &Arc<Sale>, count: usize) {
    for from in (1000..1000 + count).step_by(1000) {
        let reservations = (from..from + 1000)
            .map(|n| sale.reservation(&buyer(n), "k", 1))
            .collect();
        assert_eq!(
            sold_out(&all_answered(&[sale.at_first()], reservations).await),
            1000
        );
    }
}

/// Answers that are remembered, all segments together.
async fn decisions(sale: &Sale) -> usize {
    sale.dumps()
        .await
        .iter()
        .map(|dump| dump.decisions.len())
        .sum()
}

#[tested(on_both)]
async fn refusals_of_an_empty_item_leave_no_trace(site: Arc<Site>) {
    let sale = sold_out_sale(&site, 3, 3).await;
    let before = sale.dumps().await;
    refuse(&sale, 10_000).await;
    let fresh = sale.instance().await;
    assert_eq!(
        sale.order_at(&fresh, &buyer(9), "k", 1).await,
        Outcome::Shed,
        "an instance that has just started"
    );
    assert_eq!(sale.dumps().await, before);
}

#[tested(on_own_server)]
async fn refusals_of_an_empty_item_cost_no_calls(site: Arc<Site>, _server: &mut testbed::Redis) {
    let sale = sold_out_sale(&site, 3, 3).await;
    refuse(&sale, 1000).await;
    let (before, begin) = (calls(&sale).await, Instant::now());
    refuse(&sale, 10_000).await;
    let looks = begin.elapsed().as_millis() / 100 + 1;
    let calls = u128::from(calls(&sale).await - before);
    assert!(
        calls <= looks * 3,
        "{calls} calls for {looks} looks at three segments"
    );
}

/// Adds counts of buyers whom the test does not play, or removes them. In steps, so that each is
/// far below the time limit of a response.
async fn set_crowd(sale: &Sale, count: usize, add: bool) {
    const STEP: usize = 5000;
    let script = "for n = ARGV[1], ARGV[2] do \
           if ARGV[3] == '1' then redis.call('HSET', KEYS[1], 'crowd-' .. n, 1) \
           else redis.call('HDEL', KEYS[1], 'crowd-' .. n) end \
         end";
    for segment in 0..sale.item.segments {
        for first in (1..=count).step_by(STEP) {
            let mut call = redis::cmd("EVAL");
            call.arg(script)
                .arg(1)
                .arg(sale.names(segment).buyers)
                .arg(first)
                .arg(count.min(first + STEP - 1))
                .arg(u8::from(add));
            let () = sale.redis(&call).await;
        }
    }
}

/// A unit of a sold-out item with 300,000 buyers comes back again and again, and is bought again.
#[tested(on_own_server)]
async fn a_unit_that_comes_back_costs_no_scan_of_a_large_crowd(
    site: Arc<Site>,
    _server: &mut testbed::Redis,
) {
    let sale = sold_out_sale(&site, 3, 3).await;
    set_crowd(&sale, 100_000, true).await;
    let fresh = sale.instance().await;
    let order = async |n: usize| sale.order_at(&fresh, &buyer(n), "k", 1).await;
    let begin = Instant::now();
    assert_eq!(order(9).await, Outcome::Shed);
    let first = begin.elapsed();
    // The first refusal starts the one scan that may run in half a minute.
    let scans = || async { commands(&sale, &["hscan"]).await };
    let mut seen = 0;
    eventually("the scan ending", async || {
        let before = std::mem::replace(&mut seen, scans().await);
        tokio::time::sleep(Duration::from_millis(200)).await;
        seen > 0 && before == scans().await
    })
    .await;
    let (before, begin) = (scans().await, Instant::now());
    for turn in 0..5_u16 {
        sale.put_back(turn % 3, 1).await;
        tokio::time::sleep(Duration::from_millis(120)).await;
        assert!(is_held(&order(100 + usize::from(turn)).await));
        for stranger in 0..20 {
            let refused = order(1000 + 100 * usize::from(turn) + stranger).await;
            assert_eq!(refused, Outcome::Shed);
        }
        // Those who have something get their decision, and not a refusal.
        for winner in [0, 1, 2, 100 + usize::from(turn)] {
            let again = order(winner).await;
            assert!(
                matches!(again, Outcome::Held { replayed: true, .. }),
                "{winner}: {again:?}"
            );
        }
    }
    eprintln!(
        "the first refusal took {first:?}, five turns {:?}",
        begin.elapsed()
    );
    assert_eq!(scans().await, before, "no scan of all buyers");
    set_crowd(&sale, 100_000, false).await;
}

/// Scripts that the server has run, and scans.
pub async fn calls(sale: &Sale) -> u64 {
    commands(sale, &["eval", "evalsha", "hscan"]).await
}

/// How often the server has run these commands.
async fn commands(sale: &Sale, names: &[&str]) -> u64 {
    let stats: redis::InfoDict = sale.redis(redis::cmd("INFO").arg("commandstats")).await;
    let calls = |command: &str| {
        let stats: Option<String> = stats.get(&format!("cmdstat_{command}"));
        stats.map_or(0, |stats| {
            stats.split(['=', ',']).nth(1).unwrap().parse().unwrap()
        })
    };
    names.iter().copied().map(calls).sum()
}

#[tested(on_both)]
async fn a_buyer_who_holds_units_gets_the_recorded_decision(site: Arc<Site>) {
    let sale = sold_out_sale(&site, 3, 3).await;
    for instance in instances(&sale, 2).await {
        assert_eq!(
            sale.order_at(&instance, &buyer(9), "k", 1).await,
            Outcome::Shed
        );
        for winner in 0..3 {
            let again = sale.order_at(&instance, &buyer(winner), "k", 1).await;
            assert!(
                matches!(again, Outcome::Held { replayed: true, .. }),
                "{again:?}"
            );
            let more = sale.order_at(&instance, &buyer(winner), "another", 1).await;
            assert_eq!(more, Outcome::BuyerLimitReached);
        }
    }
}

/// A segment that has lost its counts does not know who has something, so a sold-out cache that
/// rests on it says nothing.
#[tested(on_both)]
async fn a_buyer_whose_segment_lost_its_keys_is_not_shed(site: Arc<Site>) {
    let sale = sold_out_sale(&site, 3, 3).await;
    let winner = buyer(0);
    let counts = sale.names(winner.home(3)).buyers;
    let kept: Vec<u8> = sale.redis(redis::cmd("DUMP").arg(&counts)).await;
    assert_eq!(sale.redis::<i64>(redis::cmd("DEL").arg(&counts)).await, 1);
    let fresh = sale.instance().await;
    fresh
        .order(sale.reservation(&winner, "k", 1))
        .await
        .expect_err("its home refuses until it is repaired");
    let () = sale
        .redis(redis::cmd("RESTORE").arg(&counts).arg(0).arg(kept))
        .await;
    let again = sale.order_at(&fresh, &winner, "k", 1).await;
    assert!(
        matches!(again, Outcome::Held { replayed: true, .. }),
        "{again:?}"
    );
}

#[tested(on_both)]
async fn a_paused_item_is_not_called_sold_out(site: Arc<Site>) {
    let sale = sold_out_sale(&site, 3, 3).await;
    assert_eq!(sale.order(&buyer(9), "k", 1).await, Outcome::Shed);
    for (epoch, state) in [
        (2, ItemState::Paused),
        (3, ItemState::Open),
        (4, ItemState::Closed),
    ] {
        assert_eq!(
            sale.set_state(state, epoch).await.unwrap(),
            [StateSet::Set; 3]
        );
        let set = Instant::now();
        // The sold-out cache from before may be as old as it may be.
        let is_judged = |(begun, _): &&(Duration, Outcome)| *begun > Duration::from_millis(100);
        let mut outcomes: Vec<(Duration, Outcome)> = Vec::new();
        while outcomes.iter().filter(is_judged).count() < 15 {
            // One that spilled over while the item was open would get its earlier decision.
            let key = format!("{state}-{}", outcomes.len());
            outcomes.push((set.elapsed(), sale.order(&buyer(9), &key, 1).await));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for (_, outcome) in outcomes.iter().filter(is_judged) {
            let not_open =
                matches!(outcome, Outcome::NotOpen { state: said, .. } if said == state.as_str());
            assert!(
                if state == ItemState::Open {
                    outcome.is_sold_out()
                } else {
                    not_open
                },
                "{state}: {outcome:?}"
            );
        }
    }
}

#[tested(on_both)]
async fn a_returned_unit_is_sold_once_the_sold_out_cache_has_expired(site: Arc<Site>) {
    let sale = sold_out_sale(&site, 3, 3).await;
    for n in 0..5 {
        assert_eq!(
            sale.order(&buyer(100 + n), "k", 1).await,
            Outcome::Shed,
            "this takes the sold_out_cache"
        );
        sale.put_back(u16::try_from(n % 3).unwrap(), 1).await;
        // What is asked later than this was looked for later than the unit came back, however busy
        // the machine is.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let outcome = sale.order(&buyer(200 + n), "k", 1).await;
        assert!(is_held(&outcome), "{outcome:?}");
    }
}

#[tested(on_both)]
async fn few_units_cost_few_spillovers_however_many_want_them(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(20, 3)).await;
    let instances = instances(&sale, 4).await;
    let outcomes = all_answered(
        &instances,
        (0..4000)
            .map(|n| sale.reservation(&buyer(n), "k", 1))
            .collect(),
    )
    .await;
    assert_eq!((held(&outcomes), sold_out(&outcomes)), (20, 3980));
    // Each instance admits as many as its last snapshots have left, and each of them may have to
    // ask three segments.
    let decisions = decisions(&sale).await;
    println!("{decisions} decisions for 20 units, 4 instances and 4000 orders");
    assert!(
        decisions <= 20 * 4 * 3,
        "{decisions} decisions were written"
    );
}

#[tested(on_both)]
async fn units_that_come_back_into_a_storm_are_sold_at_the_price_of_a_few_spillovers(
    site: Arc<Site>,
) {
    let sale = sold_out_sale(&site, 3, 3).await;
    let (over, won) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let mut storm = JoinSet::new();
    let instances = instances(&sale, 2).await;
    for worker in 0..200 {
        let (sale, over, won, item) = (
            Arc::clone(&sale),
            Arc::clone(&over),
            Arc::clone(&won),
            Arc::clone(&instances[worker % 2]),
        );
        storm.spawn(async move {
            for turn in 1.. {
                let outcome = sale
                    .order_at(&item, &buyer(worker + 1000 * turn), "k", 1)
                    .await;
                won.fetch_add(usize::from(is_held(&outcome)), Ordering::SeqCst);
                if over.load(Ordering::SeqCst) {
                    return turn;
                }
                tokio::task::yield_now().await;
            }
            unreachable!()
        });
    }
    let before = decisions(&sale).await;
    for n in 1..=6 {
        sale.put_back(u16::try_from(n % 3).unwrap(), 1).await;
        eventually("the unit being sold", async || {
            won.load(Ordering::SeqCst) == n
        })
        .await;
    }
    over.store(true, Ordering::SeqCst);
    let orders: usize = storm.join_all().await.into_iter().sum();
    let written = decisions(&sale).await - before;
    println!("{written} decisions for 6 units and {orders} orders");
    assert!(written <= 6 * 2 * 3 * 2, "{written} decisions for 6 units");
}

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
    site::{Site, on_both, on_own_server},
};

on_both!(
    refusals_of_an_empty_item_leave_no_trace,
    who_holds_something_is_answered_from_the_records,
    who_is_forgotten_is_not_turned_away,
    a_paused_item_is_not_called_sold_out,
    a_unit_that_came_back_is_sold_once_the_hint_is_too_old,
    few_units_cost_few_walks_however_many_want_them,
    units_that_come_back_into_a_storm_are_sold_at_the_price_of_a_few_walks,
);

on_own_server!(refusals_of_an_empty_item_cost_no_calls);

async fn sold_out_sale(site: &Arc<Site>, stock: u64, segments: u16) -> Arc<Sale> {
    let sale = sale::open(site, Terms::new(stock, segments).limit(1)).await;
    for n in 0..stock {
        assert!(is_held(
            &sale
                .order(&buyer(usize::try_from(n).unwrap()), "k", 1)
                .await
                .unwrap()
        ));
    }
    sale
}

/// Fresh buyers, none of whom may get anything.
async fn refuse(sale: &Arc<Sale>, count: usize) {
    for from in (1000..1000 + count).step_by(1000) {
        let asks = (from..from + 1000)
            .map(|n| sale.ask(&buyer(n), "k", 1))
            .collect();
        assert_eq!(
            sold_out(&all_answered(&[sale.at_first()], asks).await),
            1000
        );
    }
}

/// Answers that are remembered, all segments together.
async fn answers(sale: &Sale) -> usize {
    sale.dumps()
        .await
        .iter()
        .map(|dump| dump.answers.len())
        .sum()
}

async fn refusals_of_an_empty_item_leave_no_trace(site: Arc<Site>) {
    let sale = sold_out_sale(&site, 3, 3).await;
    let before = sale.dumps().await;
    refuse(&sale, 10_000).await;
    let fresh = sale.instance().await;
    assert_eq!(
        fresh.order(sale.ask(&buyer(9), "k", 1)).await.unwrap(),
        Outcome::TurnedAway,
        "an instance that has just started"
    );
    assert_eq!(sale.dumps().await, before);
}

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

/// Scripts that the server has run, and scans.
async fn calls(sale: &Sale) -> u64 {
    let stats: redis::InfoDict = sale.redis(redis::cmd("INFO").arg("commandstats")).await;
    let calls = |command: &str| {
        let stats: Option<String> = stats.get(&format!("cmdstat_{command}"));
        stats.map_or(0, |stats| {
            stats.split(['=', ',']).nth(1).unwrap().parse().unwrap()
        })
    };
    ["eval", "evalsha", "hscan"].into_iter().map(calls).sum()
}

async fn who_holds_something_is_answered_from_the_records(site: Arc<Site>) {
    let sale = sold_out_sale(&site, 3, 3).await;
    for instance in instances(&sale, 2).await {
        assert_eq!(
            instance.order(sale.ask(&buyer(9), "k", 1)).await.unwrap(),
            Outcome::TurnedAway
        );
        for winner in 0..3 {
            let again = instance
                .order(sale.ask(&buyer(winner), "k", 1))
                .await
                .unwrap();
            assert!(
                matches!(again, Outcome::Held { replayed: true, .. }),
                "{again:?}"
            );
            let more = instance
                .order(sale.ask(&buyer(winner), "another", 1))
                .await
                .unwrap();
            assert_eq!(more, Outcome::BuyerLimitReached);
        }
    }
}

/// A segment that has lost its counts does not know who has something, so a hint that rests on it says nothing.
async fn who_is_forgotten_is_not_turned_away(site: Arc<Site>) {
    let sale = sold_out_sale(&site, 3, 3).await;
    let winner = buyer(0);
    let counts = sale.names(winner.home(3)).buyers;
    let kept: Vec<u8> = sale.redis(redis::cmd("DUMP").arg(&counts)).await;
    assert_eq!(sale.redis::<i64>(redis::cmd("DEL").arg(&counts)).await, 1);
    let fresh = sale.instance().await;
    fresh
        .order(sale.ask(&winner, "k", 1))
        .await
        .expect_err("its home refuses until it is mended");
    let () = sale
        .redis(redis::cmd("RESTORE").arg(&counts).arg(0).arg(kept))
        .await;
    let again = fresh.order(sale.ask(&winner, "k", 1)).await.unwrap();
    assert!(
        matches!(again, Outcome::Held { replayed: true, .. }),
        "{again:?}"
    );
}

async fn a_paused_item_is_not_called_sold_out(site: Arc<Site>) {
    let sale = sold_out_sale(&site, 3, 3).await;
    assert_eq!(
        sale.order(&buyer(9), "k", 1).await.unwrap(),
        Outcome::TurnedAway
    );
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
        let mut outcomes = Vec::new();
        while set.elapsed() < Duration::from_millis(300) {
            // One that walked while the item was open would be told what it was told then.
            let key = format!("{state}-{}", outcomes.len());
            outcomes.push((set.elapsed(), sale.order(&buyer(9), &key, 1).await.unwrap()));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // The hint from before may be as old as it may be.
        for (_, outcome) in outcomes
            .iter()
            .filter(|(begun, _)| *begun > Duration::from_millis(100))
        {
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

async fn a_unit_that_came_back_is_sold_once_the_hint_is_too_old(site: Arc<Site>) {
    let sale = sold_out_sale(&site, 3, 3).await;
    for n in 0..5 {
        assert_eq!(
            sale.order(&buyer(100 + n), "k", 1).await.unwrap(),
            Outcome::TurnedAway,
            "this takes the hint"
        );
        sale.give_back(u16::try_from(n % 3).unwrap(), 1).await;
        // What is asked later than this was looked for later than the unit came back, however busy the machine is.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let outcome = sale.order(&buyer(200 + n), "k", 1).await.unwrap();
        assert!(is_held(&outcome), "{outcome:?}");
    }
}

async fn few_units_cost_few_walks_however_many_want_them(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(20, 3)).await;
    let instances = instances(&sale, 4).await;
    let outcomes = all_answered(
        &instances,
        (0..4000).map(|n| sale.ask(&buyer(n), "k", 1)).collect(),
    )
    .await;
    assert_eq!((held(&outcomes), sold_out(&outcomes)), (20, 3980));
    // Each instance lets in as many as it believes to be left, and each of them may have to ask three segments.
    let answers = answers(&sale).await;
    println!("{answers} answers for 20 units, 4 instances and 4000 orders");
    assert!(answers <= 20 * 4 * 3, "{answers} answers were written");
}

async fn units_that_come_back_into_a_storm_are_sold_at_the_price_of_a_few_walks(site: Arc<Site>) {
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
                let outcome = item
                    .order(sale.ask(&buyer(worker + 1000 * turn), "k", 1))
                    .await
                    .unwrap();
                won.fetch_add(usize::from(is_held(&outcome)), Ordering::SeqCst);
                if over.load(Ordering::SeqCst) {
                    return turn;
                }
                tokio::task::yield_now().await;
            }
            unreachable!()
        });
    }
    let before = answers(&sale).await;
    for n in 1..=6 {
        sale.give_back(u16::try_from(n % 3).unwrap(), 1).await;
        eventually("the unit being sold", async || {
            won.load(Ordering::SeqCst) == n
        })
        .await;
    }
    over.store(true, Ordering::SeqCst);
    let orders: usize = storm.join_all().await.into_iter().sum();
    let written = answers(&sale).await - before;
    println!("{written} answers for 6 units and {orders} orders");
    assert!(written <= 6 * 2 * 3 * 2, "{written} answers for 6 units");
}

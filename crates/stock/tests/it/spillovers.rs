//! Abandoned spillovers are finished, and final ones are forgotten: in the right order,
//! and not too early.

use std::{sync::Arc, time::Duration};

use domain::BuyerId;
use stock::{Acknowledge, ItemStock, Outcome, Reservation, Settled, StockError};
use testbed::Deadline;
use tokio::task::JoinSet;

use crate::{
    crowd::instances,
    sale::{self, Sale, Terms, buyer, eventually, is_held},
    site::{Site, on_both, tested},
};

fn short(reservation: Reservation) -> Reservation {
    Reservation {
        within: Duration::from_millis(1000),
        ..reservation
    }
}

/// The outcome of the order, which is repeated as long as a busy machine does not decide it in its
/// time. That is short where a test waits until it has passed.
async fn decided(item: &ItemStock, reservation: &Reservation) -> Outcome {
    let deadline = Deadline::start();
    loop {
        match item.order(reservation.clone()).await {
            Err(StockError::OutcomeUnknown(_)) => deadline.check("an order is not decided"),
            decided => return decided.unwrap(),
        }
    }
}

/// Settles, as a worker does, until nothing is left in any list.
async fn settle_all(sale: &Sale) -> Settled {
    let mut all = Settled::default();
    eventually("every spillover being forgotten", async || {
        let settled = sale.at_first().settle_spillovers().await.unwrap();
        all.finished += settled.finished;
        all.forgotten += settled.forgotten;
        sale.dumps()
            .await
            .iter()
            .all(|dump| dump.spillovers.is_empty())
    })
    .await;
    all
}

/// Every answer, in every segment, by its first letter.
async fn kinds(sale: &Sale) -> String {
    let dumps = sale.dumps().await;
    let mut kinds: Vec<char> = dumps
        .iter()
        .flat_map(|dump| {
            dump.decisions
                .values()
                .map(|decision| decision.chars().next().unwrap())
        })
        .collect();
    kinds.sort_unstable();
    kinds.into_iter().collect()
}

fn one_too_many(sale: &Sale) -> u32 {
    u32::try_from(sale.item.stock).unwrap() + 1
}

/// An order that every segment declines: it wants one unit more than there are. An item that is
/// known to be empty would not let it spill over.
async fn decline_everywhere(sale: &Sale, buyer: &BuyerId) {
    assert_eq!(
        sale.at_first()
            .order(short(sale.reservation(buyer, "k", one_too_many(sale))))
            .await
            .unwrap(),
        Outcome::SoldOut
    );
}

#[tested(on_both)]
async fn a_sold_out_spillover_is_forgotten_everywhere_and_the_order_may_be_reserved_again(
    site: Arc<Site>,
) {
    for segments in [1, 3] {
        let sale = sale::open(&site, Terms::new(segments.into(), segments).limit(9)).await;
        let ann = sale.buyer_at(0, 0);
        decline_everywhere(&sale, &ann).await;
        assert_eq!(kinds(&sale).await, if segments == 1 { "S" } else { "DDS" });
        assert_eq!(
            settle_all(&sale).await,
            Settled {
                finished: 0,
                forgotten: 1
            }
        );
        assert_eq!(kinds(&sale).await, "");
        sale.put_back(segments - 1, segments.into()).await;
        let units = one_too_many(&sale);
        assert!(sale.sells(&ann, "k", units).await);
    }
}

#[tested(on_both)]
async fn a_spillover_that_took_elsewhere_is_forgotten_but_not_what_it_took(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(1, 3)).await;
    let ann = sale.buyer_at(1, 0);
    assert!(is_held(
        &sale
            .at_first()
            .order(short(sale.reservation(&ann, "k", 1)))
            .await
            .unwrap()
    ));
    eventually("home hearing of it", async || kinds(&sale).await == "DET").await;
    assert_eq!(
        settle_all(&sale).await,
        Settled {
            finished: 0,
            forgotten: 1
        }
    );
    assert_eq!(kinds(&sale).await, "ET");
    sale.put_back(1, 1).await;
    assert!(matches!(
        sale.order(&ann, "k", 1).await,
        Outcome::Held { replayed: true, .. }
    ));
    assert_eq!(sale.available().await, 1);
}

/// A pending spillover counts against the buyer's limit, and its process is gone.
#[tested(on_both)]
async fn a_buyer_whose_order_was_abandoned_may_buy_again(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(0, 2).limit(1)).await;
    let ann = sale.buyer_at(1, 0);
    let deadline = sale.now_ms().await + 2000;
    sale.begin_spillover(&ann, "k", 1, deadline).await;
    eventually("the deadline", async || sale.now_ms().await > deadline).await;
    sale.at_first().settle_spillovers().await.unwrap();
    sale.put_back(0, 1).await;
    // Longer than the sold-out cache lives.
    tokio::time::sleep(Duration::from_millis(150)).await;
    let again = sale.order(&ann, "another", 1).await;
    assert!(is_held(&again), "{again:?}");
}

#[tested(on_both)]
async fn abandoned_spillovers_are_finished_wherever_they_stopped(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(2, 3).limit(2)).await;
    let [ann, bob, cid, dan] = [0, 1, 2, 3].map(|n| sale.buyer_at(2, n));
    let deadline = sale.now_ms().await + 2000;
    // Segment 2 is empty, 0 and 1 have a unit each.
    for buyer in [&ann, &bob, &cid, &dan] {
        sale.begin_spillover(buyer, "k", 1, deadline).await;
    }
    for (segment, buyer, decision) in [
        (0, &ann, "taken"),
        (0, &bob, "d"),
        (1, &bob, "taken"),
        (0, &cid, "d"),
    ] {
        let decided = sale.continue_spillover(segment, buyer, "k", 1, deadline);
        assert_eq!(decided.await, decision, "{buyer} at {segment}");
    }
    assert_eq!(
        sale.at_first().settle_spillovers().await.unwrap(),
        Settled::default(),
        "an order under way has time until its deadline"
    );
    eventually("the deadline", async || sale.now_ms().await > deadline).await;
    // Several workers at once.
    let mut workers = JoinSet::new();
    for instance in instances(&sale, 3).await {
        workers.spawn(async move { instance.settle_spillovers().await.unwrap() });
    }
    assert!(
        workers
            .join_all()
            .await
            .iter()
            .map(|settled| settled.finished)
            .max()
            >= Some(1)
    );
    eventually("every spillover being final", async || {
        !sale
            .dump(2)
            .await
            .decisions
            .values()
            .any(|decision| decision.starts_with('D'))
    })
    .await;
    let dump = sale.dump(2).await;
    for (buyer, kind) in [(&ann, 'E'), (&bob, 'E'), (&cid, 'S'), (&dan, 'S')] {
        assert!(
            dump.decision(sale.order_id(buyer, "k"))
                .unwrap()
                .starts_with(kind),
            "{buyer}"
        );
    }
    assert_eq!(
        dump.buyers.len(),
        2,
        "those who got nothing are not counted"
    );
    assert_eq!(settle_all(&sale).await.forgotten, 4);
    assert_eq!(kinds(&sale).await, "EETT");
}

#[tested(on_both)]
async fn home_keeps_its_decision_as_long_as_any_other_segment(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(3, 3)).await;
    let ann = sale.buyer_at(1, 0);
    decline_everywhere(&sale, &ann).await;
    // Segment 0 cannot forget for now.
    let decisions = sale.names(0).decisions;
    let aside = format!("aside:{decisions}");
    sale.run(&["RENAME", &decisions, &aside]).await;
    sale.run(&["SET", &decisions, "in the way"]).await;
    eventually("a settling that fails", async || {
        sale.at_first().settle_spillovers().await.is_err()
    })
    .await;
    let home = sale.dump(1).await;
    assert!(
        home.decision(sale.order_id(&ann, "k"))
            .unwrap()
            .starts_with('S')
    );
    assert_eq!(home.spillovers.len(), 1);
    sale.run(&["RENAME", &aside, &decisions]).await;
    assert_eq!(settle_all(&sale).await.forgotten, 1);
    assert_eq!(kinds(&sale).await, "");
}

#[tested(on_both)]
async fn a_reservation_that_arrives_after_its_deadline_is_refused(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(1, 2)).await;
    let ann = sale.buyer_at(1, 0);
    let deadline = sale.now_ms().await + 200;
    assert!(is_held(
        &sale
            .at_first()
            .order(short(sale.reservation(&ann, "k", 1)))
            .await
            .unwrap()
    ));
    settle_all(&sale).await;
    sale.put_back(0, 1).await;
    sale.put_back(1, 1).await;
    let before = sale.dumps().await;
    assert_eq!(sale.deliver_home(&ann, "k", 1, deadline).await, "late");
    assert_eq!(
        sale.deliver_home(&ann, "never-asked", 1, deadline).await,
        "late"
    );
    assert_eq!(sale.dumps().await, before);
}

#[tested(on_both)]
async fn orders_that_are_cancelled_at_any_point_are_settled(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(60, 3).limit(2)).await;
    let instances = instances(&sale, 3).await;
    let mut orders = JoinSet::new();
    let mut handles = Vec::new();
    for n in 0..400 {
        let (item, reservation) = (
            Arc::clone(&instances[n % 3]),
            short(sale.reservation(&buyer(n), "k", 1)),
        );
        handles.push(orders.spawn(async move {
            item.order(Reservation {
                acknowledge: Acknowledge::Accepted,
                ..reservation
            })
            .await
        }));
        if n % 16 == 0 {
            // Lets some of them get further than others.
            tokio::time::sleep(Duration::from_micros(50 * (n as u64 % 7))).await;
        }
        if n % 4 != 3 {
            handles[n / 2].abort();
        }
    }
    let mut held = 0;
    while let Some(ended) = orders.join_next().await {
        held +=
            usize::from(ended.is_ok_and(|outcome| outcome.is_ok_and(|outcome| is_held(&outcome))));
    }
    settle_all(&sale).await;
    let kinds = kinds(&sale).await;
    assert!(!kinds.contains(['D', 'S']), "{kinds}");
    let taken = kinds.matches('T').count();
    assert!(
        held <= taken && taken <= 60,
        "{held} orders got held for {taken} units"
    );
}

#[tested(on_both)]
async fn a_key_with_another_quantity_adds_no_pending_spillover(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(3, 3).limit(9)).await;
    let ann = sale.buyer_at(1, 0);
    let deadline = sale.now_ms().await + 1000;
    sale.begin_spillover(&ann, "k", 2, deadline).await;
    let before = sale.dump(1).await;
    let other = sale
        .at_first()
        .order(short(sale.reservation(&ann, "k", 3)))
        .await
        .unwrap();
    assert!(matches!(other, Outcome::KeyReused { .. }), "{other:?}");
    let after = sale.dump(1).await;
    // A second entry would fall due without the margin, and home would forget before the other
    // segments do.
    assert_eq!((after.spillovers.len(), &after), (1, &before));
    eventually("the deadline", async || sale.now_ms().await > deadline).await;
    assert_eq!(
        settle_all(&sale).await,
        Settled {
            finished: 1,
            forgotten: 1
        }
    );
    assert_eq!(kinds(&sale).await, "");
}

#[tested(on_both)]
async fn more_spillovers_than_fit_on_a_page_are_settled_in_one_run(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(0, 2)).await;
    let buyers: Vec<_> = (0..1300).map(|n| sale.buyer_at(0, n)).collect();
    let deadline = sale.now_ms().await + 4000;
    sale.begin_spillovers(0, &buyers, "k", deadline).await;
    eventually("the deadline", async || sale.now_ms().await > deadline).await;
    assert_eq!(
        sale.at_first().settle_spillovers().await.unwrap().finished,
        buyers.len()
    );
    assert_eq!(settle_all(&sale).await.forgotten, buyers.len());
}

#[tested(on_both)]
async fn spillovers_that_cannot_be_forgotten_do_not_delay_others(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(3, 3)).await;
    // More than a page of spillovers that are over, all from home 1.
    let mut crowd = JoinSet::new();
    for n in 0..600 {
        let (item, reservation) = (
            sale.at_first(),
            short(sale.reservation(&sale.buyer_at(1, n), "k", one_too_many(&sale))),
        );
        crowd.spawn(async move { decided(&item, &reservation).await });
    }
    assert!(crowd.join_all().await.iter().all(Outcome::is_sold_out));
    let (ann, bob) = (sale.buyer_at(1, 600), sale.buyer_at(1, 601));
    assert!(sale.sells(&ann, "k", 1).await);
    let last_due = sale
        .dump(1)
        .await
        .spillovers
        .values()
        .map(|due| due.parse::<f64>().unwrap())
        .fold(0.0, f64::max);
    eventually("the crowd's spillovers falling due", async || {
        sale.now_ms().await as f64 > last_due
    })
    .await;
    // The ring of both is 1, 2, 0. Segment 0 cannot forget for now, and an abandoned spillover that
    // ends at segment 2 comes last in the list.
    let decisions = sale.names(0).decisions;
    let aside = format!("aside:{decisions}");
    sale.run(&["RENAME", &decisions, &aside]).await;
    sale.run(&["SET", &decisions, "in the way"]).await;
    let deadline = sale.now_ms().await + 500;
    sale.begin_spillover(&bob, "k", 1, deadline).await;
    eventually("the abandoned spillover falling due", async || {
        sale.now_ms().await > deadline
    })
    .await;
    assert!(
        sale.at_first().settle_spillovers().await.is_err(),
        "what is wrong is said"
    );
    let bobs = sale
        .dump(1)
        .await
        .decision(sale.order_id(&bob, "k"))
        .unwrap()
        .to_owned();
    assert!(
        bobs.starts_with('E'),
        "finished, though its page came second: {bobs}"
    );
    sale.run(&["RENAME", &aside, &decisions]).await;
    settle_all(&sale).await;
}

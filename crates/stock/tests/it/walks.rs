//! Walks that nobody ended are ended, and walks that are over are forgotten: in the right order, and not too early.

use std::{sync::Arc, time::Duration};

use domain::BuyerId;
use stock::{Acknowledge, Ask, Outcome, walks::Settled};
use tokio::task::JoinSet;

use crate::{
    crowd::instances,
    sale::{self, Sale, Terms, buyer, eventually, is_held},
    site::{Site, on_both},
};

on_both!(
    a_sold_out_walk_is_forgotten_everywhere_and_the_order_may_walk_anew,
    a_walk_that_took_elsewhere_is_forgotten_but_not_what_it_took,
    abandoned_walks_are_finished_whoever_left_them_where,
    home_remembers_as_long_as_any_other_segment_does,
    an_ask_that_was_delayed_beyond_its_deadline_is_refused,
    orders_that_are_dropped_at_any_point_leave_nothing_that_is_not_settled,
    a_key_with_another_quantity_does_not_add_a_walk_of_its_own,
    more_walks_than_fit_on_a_page_are_settled_in_one_go,
    walks_that_cannot_be_forgotten_do_not_keep_others_from_being_finished,
);

fn short(ask: Ask) -> Ask {
    Ask {
        within: Duration::from_millis(200),
        ..ask
    }
}

/// Settles, as a worker does, until nothing is left in any list.
async fn settle_all(sale: &Sale) -> Settled {
    let mut all = Settled::default();
    eventually("every walk being forgotten", async || {
        let settled = sale.at_first().settle_walks().await.unwrap();
        all.finished += settled.finished;
        all.forgotten += settled.forgotten;
        sale.dumps().await.iter().all(|dump| dump.walks.is_empty())
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
            dump.answers
                .values()
                .map(|answer| answer.chars().next().unwrap())
        })
        .collect();
    kinds.sort_unstable();
    kinds.into_iter().collect()
}

/// An order that every segment passes: each has one unit, and it wants two. An item that is known to be empty would not let it walk.
async fn pass_everywhere(sale: &Sale, buyer: &BuyerId) {
    assert_eq!(
        sale.at_first()
            .order(short(sale.ask(buyer, "k", 2)))
            .await
            .unwrap(),
        Outcome::SoldOut
    );
}

async fn a_sold_out_walk_is_forgotten_everywhere_and_the_order_may_walk_anew(site: Arc<Site>) {
    for segments in [1, 3] {
        let sale = sale::open(&site, Terms::new(segments.into(), segments).limit(2)).await;
        let ann = sale.buyer_at(0, 0);
        pass_everywhere(&sale, &ann).await;
        assert_eq!(kinds(&sale).await, if segments == 1 { "S" } else { "PPS" });
        assert_eq!(
            settle_all(&sale).await,
            Settled {
                finished: 0,
                forgotten: 1
            }
        );
        assert_eq!(kinds(&sale).await, "");
        sale.give_back(segments - 1, 1).await;
        assert!(is_held(&sale.order(&ann, "k", 2).await.unwrap()));
    }
}

async fn a_walk_that_took_elsewhere_is_forgotten_but_not_what_it_took(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(1, 3)).await;
    let ann = sale.buyer_at(1, 0);
    assert!(is_held(
        &sale
            .at_first()
            .order(short(sale.ask(&ann, "k", 1)))
            .await
            .unwrap()
    ));
    eventually("home hearing of it", async || kinds(&sale).await == "EPT").await;
    assert_eq!(
        settle_all(&sale).await,
        Settled {
            finished: 0,
            forgotten: 1
        }
    );
    assert_eq!(kinds(&sale).await, "ET");
    sale.give_back(1, 1).await;
    assert!(matches!(
        sale.order(&ann, "k", 1).await.unwrap(),
        Outcome::Held { replayed: true, .. }
    ));
    assert_eq!(sale.available().await, 1);
}

async fn abandoned_walks_are_finished_whoever_left_them_where(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(2, 3).limit(2)).await;
    let [ann, bob, cid, dan] = [0, 1, 2, 3].map(|n| sale.buyer_at(2, n));
    let deadline = sale.now_ms().await + 100;
    // Segment 2 is empty, 0 and 1 have a unit each.
    for buyer in [&ann, &bob, &cid, &dan] {
        sale.begin_walk(buyer, "k", 1, deadline).await;
    }
    assert_eq!(sale.continue_walk(0, &ann, "k", 1, deadline).await, "taken");
    assert_eq!(sale.continue_walk(0, &bob, "k", 1, deadline).await, "p");
    assert_eq!(sale.continue_walk(1, &bob, "k", 1, deadline).await, "taken");
    assert_eq!(sale.continue_walk(0, &cid, "k", 1, deadline).await, "p");
    assert_eq!(
        sale.at_first().settle_walks().await.unwrap(),
        Settled::default(),
        "whoever walks has time until the deadline"
    );
    eventually("the deadline", async || sale.now_ms().await > deadline).await;
    // Several workers at once.
    let mut workers = JoinSet::new();
    for instance in instances(&sale, 3).await {
        workers.spawn(async move { instance.settle_walks().await.unwrap() });
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
    eventually("every walk being final", async || {
        !sale
            .dump(2)
            .await
            .answers
            .values()
            .any(|answer| answer.starts_with('P'))
    })
    .await;
    let dump = sale.dump(2).await;
    for (buyer, kind) in [(&ann, 'E'), (&bob, 'E'), (&cid, 'S'), (&dan, 'S')] {
        assert!(
            dump.answer(sale.order_id(buyer, "k"))
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

async fn home_remembers_as_long_as_any_other_segment_does(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(3, 3)).await;
    let ann = sale.buyer_at(1, 0);
    pass_everywhere(&sale, &ann).await;
    // Segment 0 cannot forget for now.
    let answers = sale.names(0).answers;
    let aside = format!("aside:{answers}");
    let () = sale
        .redis(redis::cmd("RENAME").arg(&answers).arg(&aside))
        .await;
    let () = sale
        .redis(redis::cmd("SET").arg(&answers).arg("in the way"))
        .await;
    eventually("a settling that fails", async || {
        sale.at_first().settle_walks().await.is_err()
    })
    .await;
    let home = sale.dump(1).await;
    assert!(
        home.answer(sale.order_id(&ann, "k"))
            .unwrap()
            .starts_with('S')
    );
    assert_eq!(home.walks.len(), 1);
    let () = sale
        .redis(redis::cmd("RENAME").arg(&aside).arg(&answers))
        .await;
    assert_eq!(settle_all(&sale).await.forgotten, 1);
    assert_eq!(kinds(&sale).await, "");
}

async fn an_ask_that_was_delayed_beyond_its_deadline_is_refused(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(1, 2)).await;
    let ann = sale.buyer_at(1, 0);
    let deadline = sale.now_ms().await + 200;
    assert!(is_held(
        &sale
            .at_first()
            .order(short(sale.ask(&ann, "k", 1)))
            .await
            .unwrap()
    ));
    settle_all(&sale).await;
    sale.give_back(0, 1).await;
    sale.give_back(1, 1).await;
    let before = sale.dumps().await;
    assert_eq!(sale.deliver_home(&ann, "k", 1, deadline).await, "late");
    assert_eq!(
        sale.deliver_home(&ann, "never-asked", 1, deadline).await,
        "late"
    );
    assert_eq!(sale.dumps().await, before);
}

async fn orders_that_are_dropped_at_any_point_leave_nothing_that_is_not_settled(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(60, 3).limit(2)).await;
    let instances = instances(&sale, 3).await;
    let mut orders = JoinSet::new();
    let mut handles = Vec::new();
    for n in 0..400 {
        let (item, ask) = (
            Arc::clone(&instances[n % 3]),
            short(sale.ask(&buyer(n), "k", 1)),
        );
        handles.push(orders.spawn(async move {
            item.order(Ask {
                acknowledge: Acknowledge::Accepted,
                ..ask
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
    assert!(!kinds.contains(['P', 'S']), "{kinds}");
    let taken = kinds.matches('T').count();
    assert!(
        held <= taken && taken <= 60,
        "{held} orders were told that they hold one of {taken} units"
    );
}

async fn a_key_with_another_quantity_does_not_add_a_walk_of_its_own(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(3, 3).limit(9)).await;
    let ann = sale.buyer_at(1, 0);
    let deadline = sale.now_ms().await + 300;
    sale.begin_walk(&ann, "k", 2, deadline).await;
    let before = sale.dump(1).await;
    let other = sale
        .at_first()
        .order(short(sale.ask(&ann, "k", 3)))
        .await
        .unwrap();
    assert!(matches!(other, Outcome::KeyReused { .. }), "{other:?}");
    let after = sale.dump(1).await;
    // A second entry would fall due without the margin, and home would forget before the other segments do.
    assert_eq!((after.walks.len(), &after), (1, &before));
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

async fn more_walks_than_fit_on_a_page_are_settled_in_one_go(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(0, 2)).await;
    let buyers: Vec<_> = (0..1300).map(|n| sale.buyer_at(0, n)).collect();
    let deadline = sale.now_ms().await + 1000;
    sale.begin_walks(0, &buyers, "k", deadline).await;
    eventually("the deadline", async || sale.now_ms().await > deadline).await;
    assert_eq!(
        sale.at_first().settle_walks().await.unwrap().finished,
        buyers.len()
    );
    assert_eq!(settle_all(&sale).await.forgotten, buyers.len());
}

async fn walks_that_cannot_be_forgotten_do_not_keep_others_from_being_finished(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(3, 3)).await;
    // More than a page of walks that are over, all from home 1.
    let mut crowd = JoinSet::new();
    for n in 0..600 {
        let (item, ask) = (
            sale.at_first(),
            short(sale.ask(&sale.buyer_at(1, n), "k", 2)),
        );
        crowd.spawn(async move {
            item.order(Ask {
                within: Duration::from_secs(2),
                ..ask
            })
            .await
            .unwrap()
        });
    }
    assert!(crowd.join_all().await.iter().all(Outcome::is_sold_out));
    let (ann, bob) = (sale.buyer_at(1, 600), sale.buyer_at(1, 601));
    assert!(is_held(&sale.order(&ann, "k", 1).await.unwrap()));
    let last_due = sale
        .dump(1)
        .await
        .walks
        .values()
        .map(|due| due.parse::<f64>().unwrap())
        .fold(0.0, f64::max);
    eventually("the crowd's walks falling due", async || {
        sale.now_ms().await as f64 > last_due
    })
    .await;
    // The ring of both is 1, 2, 0. Segment 0 cannot forget for now, and an abandoned walk that ends at segment 2 comes last in the list.
    let answers = sale.names(0).answers;
    let aside = format!("aside:{answers}");
    let () = sale
        .redis(redis::cmd("RENAME").arg(&answers).arg(&aside))
        .await;
    let () = sale
        .redis(redis::cmd("SET").arg(&answers).arg("in the way"))
        .await;
    let deadline = sale.now_ms().await + 50;
    sale.begin_walk(&bob, "k", 1, deadline).await;
    eventually("the abandoned walk falling due", async || {
        sale.now_ms().await > deadline
    })
    .await;
    assert!(
        sale.at_first().settle_walks().await.is_err(),
        "what is wrong is said"
    );
    let bobs = sale
        .dump(1)
        .await
        .answer(sale.order_id(&bob, "k"))
        .unwrap()
        .to_owned();
    assert!(
        bobs.starts_with('E'),
        "finished, though its page came second: {bobs}"
    );
    let () = sale
        .redis(redis::cmd("RENAME").arg(&aside).arg(&answers))
        .await;
    settle_all(&sale).await;
}

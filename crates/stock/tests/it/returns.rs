//! What was sold comes back: once, with the buyer's count, and to be sold again at once.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use domain::{BuyerId, Item, ItemState, OrderId, Quantity, TransferId, Window};
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use stock::{ItemStock, Outcome, Release, StateSet, StockSettings};
use testbed::{Redis, RedisCluster};
use tokio::task::JoinSet;

use crate::{
    crowd::{all_answered, held, instances},
    sale::{self, Sale, Terms, buyer, eventually, is_held},
    site::{self, Site, on_both, on_own_server, tested},
};

/// Far longer than any test waits, whatever waits for its end.
const SOLD_OUT_CACHE_TTL: Duration = Duration::from_secs(3600);

/// An instance whose sold-out cache lives long.
async fn stubborn(site: &Site) -> Arc<stock::Stock> {
    site.instance_with(StockSettings {
        sold_out_cache_ttl: SOLD_OUT_CACHE_TTL,
        ..site.settings()
    })
    .await
}

#[tested(on_both)]
async fn units_released_by_several_processes_concurrently_return_once(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(120, 3).limit(3)).await;
    // More than there is: some of them spillover.
    let reservations = (0..90)
        .map(|n| sale.reservation(&buyer(n), "k", 1 + u32::try_from(n).unwrap() % 3))
        .collect();
    let held = held(&all_answered(&instances(&sale, 2).await, reservations).await);
    let mut holdings = sale.holdings().await;
    assert_eq!(holdings.len(), held);
    let (kept, once) = (
        holdings.split_off(holdings.len() - 10),
        holdings.len() as u64,
    );
    // With an order twice in the same call.
    holdings.push(holdings[0].clone());
    let mut givers = JoinSet::new();
    for instance in instances(&sale, 3).await {
        let holdings = holdings.clone();
        givers.spawn(async move { instance.release(&holdings).await.unwrap() });
    }
    assert_eq!(
        givers.join_all().await.into_iter().sum::<u64>(),
        once,
        "each order by one of them"
    );
    assert_eq!(
        sale.at_first().release(&holdings).await.unwrap(),
        0,
        "a repeat changes nothing"
    );
    let kept: u64 = kept
        .iter()
        .map(|back| u64::from(back.order.quantity.get()))
        .sum();
    assert_eq!(sale.available().await, 120 - kept);
}

#[tested(on_own_server)]
async fn units_return_to_an_empty_item_together_and_also_without_their_callers(
    site: Arc<Site>,
    server: &mut Redis,
) {
    let sale = sale::open(&site, Terms::new(3, 3)).await;
    for n in 0..3 {
        assert!(sale.sells(&buyer(n), "k", 1).await);
    }
    let (item, begin) = (sale.at_first(), Instant::now());
    let back = sale.holdings().await.into_iter();
    let mut returns: Vec<_> = back
        .map(|back| Box::pin(item.release_on_the_beat(back)))
        .collect();
    // Before the first one has returned.
    server.pause().await.unwrap();
    for back in &mut returns {
        assert!(futures::poll!(back).is_pending());
    }
    server.resume().await.unwrap();
    drop(returns.pop());
    for released in join_all(returns).await {
        assert_eq!(released.unwrap(), 1);
    }
    assert!(
        begin.elapsed() >= Duration::from_millis(100),
        "the second one came with the first"
    );
    eventually("the unit of the caller who left", async || {
        sale.available().await == 3
    })
    .await;
}

async fn refused_by_sold_out_cache(sale: &Sale, item: &ItemStock, buyer: &BuyerId) {
    eventually("the sold_out_cache", async || {
        assert!(sale.order_at(item, buyer, "in-vain", 1).await.is_sold_out());
        let before = sale.dumps().await;
        assert!(
            sale.order_at(item, buyer, "in-vain-again", 1)
                .await
                .is_sold_out()
        );
        sale.dumps().await == before
    })
    .await;
}

async fn soon_held(sale: &Sale, item: &ItemStock, buyer: &BuyerId) {
    let begin = Instant::now();
    eventually("the unit being sold", async || {
        is_held(&sale.order_at(item, buyer, "k", 1).await)
    })
    .await;
    println!("sold {:?} after it came back", begin.elapsed());
}

#[tested(on_both)]
async fn a_unit_that_came_back_is_sold_at_once_at_every_instance(site: Arc<Site>) {
    let sale = sale::open_with(&site, Terms::new(3, 3), stubborn(&site).await).await;
    let other = stubborn(&site).await.item(&sale.item);
    for n in 0..3 {
        assert!(sale.sells(&buyer(n), "k", 1).await);
    }
    for item in [&sale.at_first(), &other] {
        refused_by_sold_out_cache(&sale, item, &buyer(50)).await;
    }
    let holdings = sale.holdings().await;
    sale.at_first().release(&holdings[..2]).await.unwrap();
    assert!(
        sale.sells(&buyer(10), "k", 1).await,
        "the process that released it knows immediately"
    );
    soon_held(&sale, &other, &buyer(11)).await;

    // The same for a unit that comes from elsewhere, and for one that the ledger knows of.
    for item in [&sale.at_first(), &other] {
        refused_by_sold_out_cache(&sale, item, &buyer(50)).await;
    }
    sale.stock
        .transfer_in(&sale.segment(1), TransferId::random(), 2, 1)
        .await
        .unwrap();
    soon_held(&sale, &other, &buyer(12)).await;
    soon_held(&sale, &sale.at_first(), &buyer(13)).await;
    for item in [&sale.at_first(), &other] {
        refused_by_sold_out_cache(&sale, item, &buyer(50)).await;
    }
    let halted = sale.halted(2, 2).await;
    sale.adjusted(&halted, 2, 2).await;
    soon_held(&sale, &other, &buyer(14)).await;
    soon_held(&sale, &sale.at_first(), &buyer(15)).await;
}

#[tested(on_both)]
async fn a_buyer_who_released_units_may_buy_again(site: Arc<Site>) {
    // Home 0 gives its two; what else this buyer gets is elsewhere.
    let sale = sale::open(&site, Terms::new(6, 3).limit(3)).await;
    let ann = sale.buyer_at(0, 0);
    for key in ["1", "2", "3"] {
        assert!(sale.sells(&ann, key, 1).await);
    }
    assert_eq!(sale.order(&ann, "4", 1).await, Outcome::BuyerLimitReached);
    for back in sale.holdings().await {
        assert_eq!(
            sale.at_first()
                .release(std::slice::from_ref(&back))
                .await
                .unwrap(),
            1
        );
        let again = format!("instead-of-{}", back.order.id);
        assert_eq!(
            sale.order(&ann, &again, 2).await,
            Outcome::BuyerLimitReached
        );
        assert!(
            sale.sells(&ann, &again, 1).await,
            "from segment {}",
            back.segment
        );
        assert_eq!(sale.order(&ann, "5", 1).await, Outcome::BuyerLimitReached);
    }
    sale.at_first()
        .release(&sale.holdings().await)
        .await
        .unwrap();
    assert_eq!(
        (sale.dump(0).await.buyers.len(), sale.available().await),
        (0, 6)
    );
}

#[tested(on_both)]
async fn a_released_order_is_released_permanently(site: Arc<Site>) {
    let sale = sale::open_with(&site, Terms::new(2, 2).limit(1), stubborn(&site).await).await;
    let (ann, bob) = (sale.buyer_at(0, 0), sale.buyer_at(0, 1));
    for buyer in [&ann, &bob] {
        assert!(sale.sells(buyer, "k", 1).await);
    }
    let released = async |when: &str| {
        for instance in [
            sale.at_first(),
            sale.instance().await,
            stubborn(&site).await.item(&sale.item),
        ] {
            for buyer in [&ann, &bob] {
                assert_eq!(
                    sale.order_at(&instance, buyer, "k", 1).await,
                    Outcome::Released,
                    "{when}"
                );
            }
            let reused = sale.order_at(&instance, &bob, "k", 2).await;
            assert_eq!(
                reused,
                Outcome::KeyReused {
                    quantity: Quantity::ONE
                },
                "{when}"
            );
        }
    };
    sale.at_first()
        .release(&sale.holdings().await)
        .await
        .unwrap();
    released("with units there").await;
    assert_eq!(sale.available().await, 2);
    for n in 0..2 {
        assert!(sale.sells(&buyer(100 + n), "k", 1).await);
    }
    released("with none there").await;
    refused_by_sold_out_cache(&sale, &sale.at_first(), &buyer(50)).await;
    released("while the item is sold out for other buyers").await;
    sale.set_state(ItemState::Closed, 2).await.unwrap();
    released("when the sale is over").await;
    sale.set_state(ItemState::Open, 3).await.unwrap();
    // They may have the units again, under another id.
    sale.at_first()
        .release(&sale.holdings().await)
        .await
        .unwrap();
    let reacquire = stock::Reservation {
        order: sale.order_id(&ann, "k").reacquire(1),
        ..sale.reservation(&ann, "k", 1)
    };
    assert!(is_held(&sale.at_first().order(reacquire).await.unwrap()));
    released("and that changes nothing").await;
}

#[tested(on_both)]
async fn a_crowd_buys_whatever_others_release(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(30, 3).limit(2)).await;
    let mut buyers = JoinSet::new();
    for instance in instances(&sale, 2).await {
        for worker in 0..20 {
            let (sale, instance) = (Arc::clone(&sale), Arc::clone(&instance));
            buyers.spawn(async move { buy_and_regret(&sale, &instance, worker).await });
        }
    }
    let regretted: usize = buyers.join_all().await.into_iter().sum();
    println!("{regretted} orders were given back");
    assert!(regretted > 40);
    let holdings = sale.holdings().await;
    sale.at_first().release(&holdings).await.unwrap();
    assert_eq!(sale.available().await, 30);
}

/// Orders again and again, at its own instance, and releases most of it. Two of them are
/// the same buyer.
async fn buy_and_regret(sale: &Sale, instance: &ItemStock, worker: usize) -> usize {
    let (buyer, mut regretted) = (buyer(worker), 0);
    for turn in 0..8 {
        let (key, units) = (format!("k{turn}"), 1 + u32::try_from(worker % 2).unwrap());
        let outcome = sale.order_at(instance, &buyer, &key, units).await;
        let id = sale.order_id(&buyer, &key);
        if is_held(&outcome) && turn % 4 != 3 {
            let segment = find(sale, id).await;
            // The other one may have given it back already: both have asked for it.
            let back = instance
                .release(&[sale.to_return(&buyer, &key, units, segment)])
                .await
                .unwrap();
            regretted += usize::try_from(back).unwrap();
            assert_eq!(
                sale.order_at(instance, &buyer, &key, units).await,
                Outcome::Released
            );
        }
    }
    regretted
}

/// The segment that gave units to the order, or that did once.
async fn find(sale: &Sale, order: OrderId) -> u16 {
    for segment in 0..sale.item.segments {
        let mut cmd = redis::cmd("HGET");
        cmd.arg(sale.names(segment).decisions)
            .arg(&order.as_bytes()[..]);
        let decision: Option<String> = sale.redis(&cmd).await;
        if decision.is_some_and(|decision| decision.starts_with('T')) {
            return segment;
        }
    }
    0
}

#[tested(on_both)]
async fn units_that_were_not_taken_are_not_released(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(4, 2)).await;
    let (ann, bob) = (sale.buyer_at(0, 0), sale.buyer_at(1, 0));
    assert!(sale.sells(&ann, "k", 1).await);
    let before = sale.dumps().await;
    let wrong = [
        sale.to_return(&bob, "never", 1, 0),
        sale.to_return(&bob, "never", 1, 1),
        // It has its units from segment 0, and there is no segment 2.
        sale.to_return(&ann, "k", 1, 1),
        sale.to_return(&ann, "other", 1, 2),
    ];
    assert_eq!(sale.at_first().release(&wrong).await.unwrap(), 0);
    assert_eq!(sale.at_first().release(&[]).await.unwrap(), 0);
    assert_eq!(sale.dumps().await, before);
}

#[tested(on_both)]
async fn a_change_of_limit_and_window_is_obeyed_by_every_segment_and_instance(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(60, 3).limit(1)).await;
    // They had the item before.
    let instances = instances(&sale, 2).await;
    let buyers = [0, 1, 2].map(|home| sale.buyer_at(home, 0));
    let mut turn = 0;
    let mut each = async |what: &str, expected: &dyn Fn(&Outcome) -> bool| {
        for instance in &instances {
            turn += 1;
            for buyer in &buyers {
                let outcome = sale.order_at(instance, buyer, &format!("k{turn}"), 1).await;
                assert!(expected(&outcome), "{what}: {outcome:?}");
            }
        }
    };
    let limit = |units: u32| Some(Quantity::new(units).unwrap());
    let configure = async |epoch: u64, limit_per_buyer: Option<Quantity>, window: Window| {
        let item = Item {
            epoch,
            limit_per_buyer,
            window,
            ..sale.item.clone()
        };
        assert_eq!(
            sale.stock.configure(&item).await.unwrap(),
            [StateSet::Set; 3]
        );
        assert_eq!(
            sale.stock.configure(&item).await.unwrap(),
            [StateSet::Same; 3]
        );
    };
    let hour = SignedDuration::from_hours(1);
    let (past, future) = (Timestamp::now() - hour, Timestamp::now() + hour);
    let not_open =
        |outcome: &Outcome| matches!(outcome, Outcome::NotOpen { state, .. } if state == "open");
    let always = Window::default();

    configure(2, limit(2), always).await;
    each("two for each", &is_held).await;
    each("and no more", &|outcome| {
        *outcome == Outcome::BuyerLimitReached
    })
    .await;
    configure(3, None, always).await;
    each("no limit", &is_held).await;
    configure(4, limit(1), always).await;
    each("a limit below what they have", &|outcome| {
        *outcome == Outcome::BuyerLimitReached
    })
    .await;
    configure(
        5,
        limit(100),
        Window {
            opens_at: Some(future),
            closes_at: None,
        },
    )
    .await;
    each("not yet", &not_open).await;
    configure(
        6,
        limit(100),
        Window {
            opens_at: Some(past),
            closes_at: Some(future),
        },
    )
    .await;
    each("now", &is_held).await;
    configure(
        7,
        limit(100),
        Window {
            opens_at: None,
            closes_at: Some(past),
        },
    )
    .await;
    each("not any more", &not_open).await;
    assert_eq!(
        sale.set_state(ItemState::Open, 6).await.unwrap(),
        [StateSet::Stale; 3],
        "what is older stands back"
    );
    each("still not", &not_open).await;
    let inspection = sale
        .stock
        .inspect(&sale.segment(2), stock::InspectionEntries::None)
        .await
        .unwrap();
    assert_eq!(
        (inspection.limit, inspection.opens_ms, inspection.closes_ms),
        (100, 0, past.as_millisecond())
    );
}

/// Whether the segment and the buyer's home answer.
fn is_reachable(sale: &Sale, down: &[u16], back: &Release) -> bool {
    let home =
        u16::try_from(back.order.buyer.stable_hash() % u64::from(sale.item.segments)).unwrap();
    !down.contains(&back.segment) && !down.contains(&home)
}

/// Segments that this master has.
async fn segments_at(sale: &Sale, master: &Redis) -> Vec<u16> {
    let mut connection = site::raw(&master.url()).await;
    let mut segments = Vec::new();
    for segment in 0..sale.item.segments {
        // It refuses to speak of a key that another master has.
        let exists = redis::cmd("EXISTS")
            .arg(sale.names(segment).stock)
            .query_async::<bool>(&mut connection)
            .await;
        segments.extend(exists.is_ok().then_some(segment));
    }
    segments
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_silent_keeps_only_its_own_units() {
    let cluster = RedisCluster::start(3).await.unwrap();
    let site = Site::at(
        cluster.url(),
        cluster.nodes().iter().map(Redis::url).collect(),
    )
    .await
    .with_silent_servers();
    site::run(site, async |site: Arc<Site>| {
        let sale = sale::open(&site, Terms::new(240, 12).limit(2)).await;
        let reservations = (0..200)
            .map(|n| sale.reservation(&buyer(n), "k", 1))
            .collect();
        assert_eq!(
            held(&all_answered(&[sale.at_first()], reservations).await),
            200
        );
        let holdings = sale.holdings().await;
        let down = segments_at(&sale, &cluster.nodes()[0]).await;
        assert!(!down.is_empty() && down.len() < 12, "{down:?}");

        cluster.nodes()[0].pause().await.unwrap();
        let failed = sale.at_first().release(&holdings).await.unwrap_err();
        assert!(failed.is_retryable(), "{failed}");
        let reachable: Vec<_> = holdings
            .iter()
            .filter(|back| is_reachable(&sale, &down, back))
            .collect();
        for back in &reachable {
            let decision = sale
                .dump(back.segment)
                .await
                .decision(back.order.id)
                .unwrap()
                .to_owned();
            assert!(
                decision.starts_with("R1:"),
                "segment {} replies, and so does home: {decision}",
                back.segment
            );
        }
        cluster.nodes()[0].resume().await.unwrap();
        let mut rest = 0;
        eventually("everything having been given back", async || {
            match sale.at_first().release(&holdings).await {
                Ok(released) => {
                    rest += released;
                    true
                }
                Err(error) => {
                    assert!(error.is_retryable(), "{error}");
                    false
                }
            }
        })
        .await;
        println!(
            "{} of {} orders while a master was silent, {rest} afterwards",
            reachable.len(),
            holdings.len()
        );
        assert!(!reachable.is_empty() && reachable.len() < holdings.len());
        assert_eq!(sale.available().await, 240);
        assert_eq!(sale.at_first().release(&holdings).await.unwrap(), 0);
    })
    .await;
}

#[tested(on_own_server)]
async fn a_server_without_memory_still_releases_and_is_repaired(
    site: Arc<Site>,
    _server: &mut Redis,
) {
    let sale = sale::open(&site, Terms::new(4, 2).limit(2)).await;
    let [ann, bob] = [0, 1].map(|n| sale.buyer_at(0, n));
    for (buyer, key) in [(&ann, "1"), (&bob, "1"), (&ann, "elsewhere")] {
        assert!(sale.sells(buyer, key, 1).await);
    }
    let elsewhere = sale.order_id(&ann, "elsewhere");
    eventually("home hearing of it", async || {
        sale.dump(0)
            .await
            .decision(elsewhere)
            .is_some_and(|decision| decision.starts_with('E'))
    })
    .await;
    let maxmemory = async |bytes: u64| -> () {
        sale.redis(redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(bytes))
            .await
    };
    maxmemory(1).await;
    let before = sale.dumps().await;
    let refused = sale
        .stock
        .transfer_out(&sale.segment(1), TransferId::random(), 1, 1)
        .await
        .unwrap_err();
    assert!(
        refused.is_retryable() && refused.to_string().contains("OOM"),
        "{refused}"
    );
    assert_eq!(
        sale.dumps().await,
        before,
        "units that left would have to arrive somewhere"
    );

    let item = sale.at_first();
    assert_eq!(
        item.release(&sale.holdings().await).await.unwrap(),
        3,
        "at home and elsewhere"
    );
    assert_eq!(
        sale.stock
            .transfer_in(&sale.segment(1), TransferId::random(), 2, 1)
            .await
            .unwrap(),
        2
    );
    sale.lose(0).await;
    let halted = sale.halted(0, 2).await;
    let released = |buyer: &BuyerId, key: &str, segment: u16| domain::Memory {
        order: sale.order_id(buyer, key),
        attempt: 0,
        segment,
        buyer: buyer.clone(),
        quantity: Quantity::ONE,
        expires_ms: 0,
        taken: false,
    };
    let memories = [
        released(&ann, "1", 0),
        released(&bob, "1", 0),
        released(&ann, "elsewhere", 1),
    ];
    let restoration = sale
        .stock
        .restore(&sale.item, &halted, &memories, &[])
        .await
        .unwrap();
    sale.stock
        .adjust(&sale.item, &halted, restoration, 2, 2)
        .await
        .unwrap();
    item.settle_spillovers().await.unwrap();
    maxmemory(0).await;
    assert_eq!(
        sale.stock
            .transfer_out(&sale.segment(1), TransferId::random(), 1, 1)
            .await
            .unwrap(),
        1
    );
    for (buyer, key) in [(&ann, "1"), (&bob, "1"), (&ann, "elsewhere")] {
        assert_eq!(sale.order(buyer, key, 1).await, Outcome::Released);
    }
    assert!(sale.sells(&ann, "again", 2).await);
}

//! Orders before the item opens: what they cost, and that none of them is refused wrongly.

use std::{sync::Arc, time::Duration};

use domain::{Item, Window};
use jiff::{SignedDuration, Timestamp};
use stock::{ItemStock, Outcome, StockSettings};

use crate::{
    sale::{self, Sale, Terms, buyer, is_held},
    site::{Site, on_both, on_own_server, tested},
    sold_out_cache::calls,
};

fn opens_in(milliseconds: i64) -> Window {
    Window {
        opens_at: Some(Timestamp::now() + SignedDuration::from_millis(milliseconds)),
        closes_at: None,
    }
}

const AN_HOUR: i64 = 3_600_000;

async fn opening(site: &Arc<Site>, window: Window) -> Arc<Sale> {
    let terms = Terms::new(1000, 3);
    sale::open(site, Terms { window, ..terms }).await
}

async fn order(sale: &Sale, item: &ItemStock, n: usize) -> Outcome {
    let reservation = sale.reservation(&buyer(n), "k", 1);
    item.order(reservation).await.unwrap()
}

fn is_early(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::NotOpen { opens_at: Some(_), state, .. } if state == "open")
}

async fn set_window(sale: &Sale, window: Window, epoch: u64) {
    let item = Item {
        window,
        epoch,
        ..sale.item.clone()
    };
    sale.stock.configure(&item).await.unwrap();
}

/// One at a time, so that no batch makes them cheap.
#[tested(on_own_server)]
async fn early_orders_cost_no_calls(site: Arc<Site>, _server: &mut testbed::Redis) {
    const ORDERS: usize = 2000;
    // A look at the segments is good for an hour.
    let settings = StockSettings {
        sold_out_cache_ttl: Duration::from_secs(3600),
        ..site.settings()
    };
    let terms = Terms {
        window: opens_in(AN_HOUR),
        ..Terms::new(1000, 3)
    };
    let sale = sale::open_with(&site, terms, site.instance_with(settings).await).await;
    let item = sale.at_first();
    assert!(is_early(&order(&sale, &item, 0).await));
    let before = calls(&sale).await;
    for n in 1..=ORDERS {
        assert!(is_early(&order(&sale, &item, n).await));
    }
    let calls = calls(&sale).await - before;
    // A look is an order, three segments and their buyers; and the segments twice again, for no
    // failover may have come in between.
    assert!(calls <= 13, "{calls} calls for a look at three segments");
}

#[tested(on_both)]
async fn an_early_buyer_who_holds_units_gets_the_recorded_decision(site: Arc<Site>) {
    let sale = opening(&site, Window::default()).await;
    let other = sale.instance().await;
    assert!(is_held(&order(&sale, &other, 7).await));
    set_window(&sale, opens_in(AN_HOUR), 2).await;
    for item in [sale.at_first(), other] {
        for _ in 0..3 {
            assert!(is_early(&order(&sale, &item, 8).await));
            let again = order(&sale, &item, 7).await;
            assert!(
                matches!(again, Outcome::Held { replayed: true, .. }),
                "{again:?}"
            );
        }
    }
}

#[tested(on_both)]
async fn the_first_orders_after_the_opening_are_taken(site: Arc<Site>) {
    // A busy machine may need longer than the first for an order before the opening.
    for milliseconds in [600, 6000, 60_000] {
        if early_orders_until_the_opening(&site, milliseconds).await > 0 {
            return;
        }
    }
    panic!("no order came before the opening");
}

/// Orders until ten are taken. Returns how many came too early.
async fn early_orders_until_the_opening(site: &Arc<Site>, milliseconds: i64) -> usize {
    let window = opens_in(milliseconds);
    let opens_ms = window.opens_at.unwrap().as_millisecond();
    let sale = opening(site, window).await;
    let item = sale.at_first();
    let (mut early, mut held) = (0, 0);
    for n in 0.. {
        let before = sale.now_ms().await;
        let outcome = order(&sale, &item, n).await;
        let after = sale.now_ms().await;
        if is_held(&outcome) {
            assert!(after >= opens_ms, "{} ms early", opens_ms - after);
            held += 1;
        } else {
            assert!(is_early(&outcome), "{outcome:?}");
            assert!(before <= opens_ms, "{} ms late", before - opens_ms);
            early += 1;
        }
        if held == 10 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    early
}

#[tested(on_both)]
async fn an_item_that_opens_earlier_than_planned_sells_at_once(site: Arc<Site>) {
    let sale = opening(&site, opens_in(AN_HOUR)).await;
    let (item, other) = (sale.at_first(), sale.instance().await);
    for item in [&item, &other] {
        assert!(is_early(&order(&sale, item, 0).await));
        assert!(is_early(&order(&sale, item, 1).await));
    }
    set_window(&sale, Window::default(), 2).await;
    let first = order(&sale, &item, 2).await;
    assert!(is_held(&first), "{first:?}");
    // Another process has heard nothing of it, and asks again a moment later.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let later = order(&sale, &other, 3).await;
    assert!(is_held(&later), "{later:?}");
}

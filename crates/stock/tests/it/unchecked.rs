//! A home whose mark is not its server's history may have forgotten what it had declined. Nobody is
//! refused on its word alone.

use std::sync::Arc;

use domain::{EntryId, ItemState};
use stock::{InspectionEntries, ItemStock, Outcome};
use testbed::eventually;

use crate::{
    sale::{self, Sale, Terms, buyer},
    site::{Site, on_both, tested},
};

const UNITS: usize = 3;

async fn sold_out_sale(site: &Arc<Site>) -> Arc<Sale> {
    let sale = sale::open(site, Terms::new(UNITS as u64, 3).limit(1)).await;
    for n in 0..UNITS {
        assert!(sale.sells(&buyer(n), "k", 1).await);
    }
    sale
}

async fn order(sale: &Sale, item: &ItemStock, n: usize) -> Outcome {
    let reservation = sale.reservation(&buyer(n), "k", 1);
    item.order(reservation).await.unwrap()
}

/// The mark of a segment, in place of that which it had.
async fn mark(sale: &Sale, segment: u16, history: &str) {
    let mut set = redis::cmd("HSET");
    set.arg(sale.names(segment).stock)
        .arg("checked")
        .arg(history);
    let () = sale.redis(&set).await;
}

async fn history(sale: &Sale, segment: u16) -> String {
    let key = sale.segment(segment);
    let read = sale.stock.inspect(&key, InspectionEntries::History).await;
    let read = read.unwrap();
    assert_eq!(read.checked, read.history, "as it was opened");
    assert!(!read.history.is_empty() && read.entries.is_empty());
    assert!(read.last > EntryId { ms: 0, seq: 0 });
    read.history
}

fn may_be_lost(outcome: &Outcome, refused: impl Fn(&Outcome) -> bool) -> bool {
    matches!(outcome, Outcome::MaybeLost { refused: inner } if refused(inner))
}

/// Until a cache from before has expired.
async fn hears(sale: &Sale, item: &ItemStock, what: &str, expected: impl Fn(&Outcome) -> bool) {
    eventually(what, async || expected(&order(sale, item, 9).await)).await;
}

#[tested(on_both)]
async fn no_stranger_is_shed_while_a_home_is_unchecked(site: Arc<Site>) {
    let sale = sold_out_sale(&site).await;
    let item = sale.at_first();
    let is_shed = |outcome: &Outcome| *outcome == Outcome::Shed;
    assert!(is_shed(&order(&sale, &item, 9).await));
    let checked = history(&sale, 1).await;
    mark(&sale, 1, "another").await;
    let before = sale.dumps().await;
    hears(&sale, &item, "no word of an unchecked home", |outcome| {
        may_be_lost(outcome, is_shed)
    })
    .await;
    let fresh = sale.instance().await;
    for instance in [&item, &fresh] {
        assert!(may_be_lost(&order(&sale, instance, 9).await, is_shed));
        assert_eq!(instance.foresees(), None, "nor a cart");
        for winner in 0..UNITS {
            let again = order(&sale, instance, winner).await;
            assert!(
                matches!(again, Outcome::Held { replayed: true, .. }),
                "home knows it: {again:?}"
            );
        }
    }
    assert_eq!(sale.dumps().await, before, "a stranger leaves nothing");
    mark(&sale, 1, &checked).await;
    hears(&sale, &item, "a refusal by checked homes", is_shed).await;
}

/// It has no cache from before, so its first answer tells.
#[tested(on_both)]
async fn a_new_process_does_not_trust_an_unchecked_home(site: Arc<Site>) {
    let sale = sold_out_sale(&site).await;
    mark(&sale, 1, "another").await;
    let fresh = sale.instance().await;
    let refused = order(&sale, &fresh, 9).await;
    assert!(
        may_be_lost(&refused, |outcome| *outcome == Outcome::Shed),
        "{refused:?}"
    );
}

#[tested(on_both)]
async fn no_stranger_hears_that_an_item_is_paused_while_a_home_is_unchecked(site: Arc<Site>) {
    let sale = sold_out_sale(&site).await;
    let item = sale.instance().await;
    sale.set_state(ItemState::Paused, 2).await.unwrap();
    let is_paused =
        |outcome: &Outcome| matches!(outcome, Outcome::NotOpen { state, .. } if state == "paused");
    assert!(is_paused(&order(&sale, &item, 9).await));
    let checked = history(&sale, 2).await;
    mark(&sale, 2, "another").await;
    let fresh = sale.instance().await;
    for instance in [&item, &fresh] {
        hears(&sale, instance, "no word of an unchecked home", |outcome| {
            may_be_lost(outcome, is_paused)
        })
        .await;
    }
    mark(&sale, 2, &checked).await;
    hears(&sale, &item, "a refusal by checked homes", is_paused).await;
}

#[tested(on_both)]
async fn an_order_is_found_at_the_segment_that_has_taken_it(site: Arc<Site>) {
    let sale = sold_out_sale(&site).await;
    let item = sale.at_first();
    for n in 0..UNITS {
        let id = sale.order_id(&buyer(n), "k");
        assert!(item.is_taken(id).await.unwrap());
    }
    let other = sale.order_id(&buyer(9), "k");
    assert!(!item.is_taken(other).await.unwrap());
}

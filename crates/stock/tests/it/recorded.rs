//! Orders that wait for the ledger, with a recorder that is as small as one can be.

use std::{collections::HashMap, sync::Arc, time::Duration};

use domain::{BuyerId, Change, Entry, EntryId, OrderId};
use stock::{
    Acknowledge, Announcement, Outcome, RecordedEntries, Reservation, Resolution, StockError,
};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    crowd::{all_answered, instances},
    sale::{self, Sale, Terms, buyer, eventually},
    site::{Site, on_both, tested},
};

fn recorded(reservation: Reservation) -> Reservation {
    Reservation {
        acknowledge: Acknowledge::Recorded,
        ..reservation
    }
}

fn begin(sale: &Arc<Sale>, buyer: &BuyerId) -> JoinHandle<Result<Outcome, StockError>> {
    let (item, reservation) = (sale.at_first(), recorded(sale.reservation(buyer, "k", 1)));
    tokio::spawn(async move { item.order(reservation).await })
}

async fn entries(sale: &Sale, segment: u16, from: Option<EntryId>) -> Vec<Entry> {
    sale.stock
        .read_outbox(&sale.segment(segment), from, 1000)
        .await
        .unwrap()
}

/// The entry by which an order took units from this segment.
async fn taken(sale: &Sale, segment: u16) -> ((EntryId, i64), Vec<OrderId>) {
    let mut found = None;
    eventually("an order taking its units", async || {
        let entry = entries(sale, segment, None).await.pop().unwrap();
        found = Some(((entry.id, entry.fingerprint), orders(&entry)))
            .filter(|(_, orders)| !orders.is_empty());
        found.is_some()
    })
    .await;
    found.unwrap()
}

/// What a recorder says.
async fn publish(sale: &Sale, segment: u16, entries: &[(EntryId, i64)], rejected: &[OrderId]) {
    let recorded = RecordedEntries {
        segment: sale.segment(segment),
        entries: entries.to_vec(),
        rejected: rejected.to_vec(),
    };
    // Before the checkpoint lies nothing.
    let announcement = Announcement {
        recorded,
        checkpoint: EntryId::default(),
    };
    let left = sale.stock.announce_recorded(vec![announcement]).await;
    assert!(matches!(left.as_slice(), [Ok(1..)]), "{left:?}");
}

#[tested(on_both)]
async fn an_order_is_acknowledged_when_it_is_recorded_and_not_before(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(2, 2)).await;
    // Also for units that were taken away from home.
    for (key, ann) in [(0, sale.buyer_at(0, 0)), (1, sale.buyer_at(0, 1))] {
        let order = begin(&sale, &ann);
        let (entry, orders) = taken(&sale, key).await;
        assert_eq!(orders, [sale.order_id(&ann, "k")]);
        let (id, fingerprint) = entry;
        let (earlier, later) = (
            EntryId {
                ms: id.ms - 1,
                seq: 0,
            },
            EntryId {
                ms: id.ms + 1,
                seq: 0,
            },
        );
        publish(
            &sale,
            key,
            &[(earlier, fingerprint), (later, fingerprint)],
            &[],
        )
        .await;
        publish(&sale, key, &[(id, fingerprint + 1)], &[]).await;
        publish(&sale, 1 - key, &[entry], &[]).await;
        assert_eq!(sale.stock.overdue(Duration::ZERO).len(), 1);
        assert!(!order.is_finished());
        publish(&sale, key, &[(earlier, 0), entry], &[]).await;
        let outcome = order.await.unwrap().unwrap();
        assert!(
            matches!(
                outcome,
                Outcome::Held {
                    replayed: false,
                    recorded: true,
                    ..
                }
            ),
            "{outcome:?}"
        );
    }
    assert!(sale.stock.overdue(Duration::ZERO).is_empty());
    let again = sale
        .at_first()
        .order(recorded(sale.reservation(&sale.buyer_at(0, 0), "k", 1)))
        .await
        .unwrap();
    assert!(
        matches!(
            again,
            Outcome::Held {
                replayed: true,
                recorded: false,
                ..
            }
        ),
        "the ledger is to be asked: {again:?}"
    );
}

#[tested(on_both)]
async fn an_order_that_the_ledger_rejects_gets_rejected(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(2, 1)).await;
    let (ann, bob) = (sale.buyer_at(0, 0), sale.buyer_at(0, 1));
    let first = begin(&sale, &ann);
    taken(&sale, 0).await;
    let second = begin(&sale, &bob);
    eventually("both taking", async || sale.available().await == 0).await;
    eventually("both waiting", async || {
        sale.stock
            .overdue(Duration::ZERO)
            .iter()
            .map(|(_, orders)| orders.len())
            .sum::<usize>()
            == 2
    })
    .await;
    let both: Vec<_> = entries(&sale, 0, None)
        .await
        .iter()
        .map(|entry| (entry.id, entry.fingerprint))
        .collect();
    publish(&sale, 0, &both, &[sale.order_id(&bob, "k")]).await;
    assert!(matches!(
        first.await.unwrap().unwrap(),
        Outcome::Held { recorded: true, .. }
    ));
    assert_eq!(second.await.unwrap().unwrap(), Outcome::Rejected);
}

#[tested(on_both)]
async fn a_recorder_in_the_same_process_notifies_waiters_without_a_message(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(3, 2)).await;
    let reconnected = sale.stock.reconnect().await.unwrap();
    for (segment, recorder) in [(0, &sale.stock), (1, &reconnected)] {
        let order = begin(&sale, &sale.buyer_at(segment, 0));
        let (entry, _) = taken(&sale, segment).await;
        let recorded = RecordedEntries {
            segment: sale.segment(segment),
            entries: vec![entry],
            rejected: vec![],
        };
        // If the reply is still under way, this is kept for it.
        recorder.notify_local_waiters(&[Announcement {
            recorded,
            checkpoint: entry.0,
        }]);
        assert!(matches!(
            order.await.unwrap().unwrap(),
            Outcome::Held { recorded: true, .. }
        ));
    }
}

#[tested(on_both)]
async fn a_lost_message_is_made_up_for(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(2, 2)).await;
    let ann = sale.buyer_at(1, 0);
    let order = begin(&sale, &ann);
    let (entry, _) = taken(&sale, 1).await;
    eventually("the order being overdue", async || {
        !sale.stock.overdue(Duration::from_millis(50)).is_empty()
    })
    .await;
    let overdue = sale.stock.overdue(Duration::from_millis(50));
    assert_eq!(
        overdue,
        [(sale.segment(1), vec![(entry.0, sale.order_id(&ann, "k"))])]
    );
    assert!(!order.is_finished());
    sale.stock.resolve(
        &sale.segment(1),
        &HashMap::from([(sale.order_id(&ann, "k"), Resolution::Recorded)]),
    );
    assert!(matches!(
        order.await.unwrap().unwrap(),
        Outcome::Held { recorded: true, .. }
    ));
}

#[tested(on_both)]
async fn an_order_that_is_never_recorded_is_unknown_and_keeps_its_units(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(1, 2)).await;
    let ann = sale.buyer_at(1, 0);
    let reservation = Reservation {
        within: Duration::from_millis(300),
        ..recorded(sale.reservation(&ann, "k", 1))
    };
    assert!(matches!(
        sale.at_first().order(reservation).await,
        Err(StockError::OutcomeUnknown(_))
    ));
    for instance in instances(&sale, 2).await {
        let again = instance
            .order(recorded(sale.reservation(&ann, "k", 1)))
            .await
            .unwrap();
        assert!(
            matches!(
                again,
                Outcome::Held {
                    replayed: true,
                    recorded: false,
                    ..
                }
            ),
            "{again:?}"
        );
    }
    assert_eq!(sale.available().await, 0);
}

/// Reads, announces, trims, until it is stopped.
async fn record(
    sale: Arc<Sale>,
    segment: u16,
    rejects: fn(&OrderId) -> bool,
    stop: CancellationToken,
) {
    let mut checkpoint = None;
    while !stop.is_cancelled() {
        let read = entries(&sale, segment, checkpoint).await;
        let new = if checkpoint.is_some() {
            &read[1..]
        } else {
            &read[..]
        };
        assert!(
            checkpoint.is_none() || Some(read[0].id) == checkpoint,
            "the anchor stays"
        );
        let Some(last) = new.last() else {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        };
        let rejected: Vec<_> = new.iter().flat_map(orders).filter(rejects).collect();
        let recorded: Vec<_> = new
            .iter()
            .map(|entry| (entry.id, entry.fingerprint))
            .collect();
        publish(&sale, segment, &recorded, &rejected).await;
        sale.trim(segment, last.id).await;
        checkpoint = Some(last.id);
    }
}

fn orders(entry: &Entry) -> Vec<OrderId> {
    match &entry.change {
        Change::Taken { orders, .. } => orders.iter().map(|order| order.id).collect(),
        _ => vec![],
    }
}

#[tested(on_both)]
async fn a_crowd_is_acknowledged_at_every_instance_while_the_outbox_is_trimmed(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(600, 3)).await;
    let instances = instances(&sale, 3).await;
    let rejects = |order: &OrderId| order.as_bytes()[15].is_multiple_of(8);
    let (stop, mut recorders) = (CancellationToken::new(), JoinSet::new());
    for segment in 0..3 {
        recorders.spawn(record(Arc::clone(&sale), segment, rejects, stop.clone()));
    }
    let reservations: Vec<_> = (0..700)
        .map(|n| recorded(sale.reservation(&buyer(n), "k", 1)))
        .collect();
    let orders: Vec<_> = reservations
        .iter()
        .map(|reservation| reservation.order)
        .collect();
    let outcomes = all_answered(&instances, reservations).await;
    let mut taken = 0;
    for (order, outcome) in orders.iter().zip(&outcomes) {
        match outcome {
            Outcome::Held {
                recorded: true,
                replayed: false,
                ..
            } => assert!(!rejects(order)),
            Outcome::Rejected => assert!(rejects(order)),
            Outcome::SoldOut | Outcome::Shed => continue,
            other => panic!("{other:?}"),
        }
        taken += 1;
    }
    assert_eq!(taken, 600);
    stop.cancel();
    recorders.join_all().await;
}

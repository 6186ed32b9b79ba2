//! A segment that lost what it knew, or part of it, answers as before when it has been repaired.

use std::{collections::BTreeMap, sync::Arc};

use domain::{BuyerId, Change, Memory, OrderId, Quantity, TakenOrder};
use stock::{
    Adjusted, Halted, InspectionEntries, Outcome, Release, Reservation, Restoration, StockError,
};

use crate::{
    crowd::{all_answered, instances},
    sale::{self, Sale, Terms, buyer},
    site::{Site, on_both, tested},
};

/// What a ledger would remember: the last attempt of each order, and whether it has its units.
async fn memories(sale: &Sale) -> Vec<Memory> {
    let mut memories: BTreeMap<OrderId, Memory> = BTreeMap::new();
    let (holdings, mut taken) = (sale.holdings().await, Vec::new());
    for segment in 0..sale.item.segments {
        let mut entries = sale
            .trimmed
            .lock()
            .unwrap()
            .get(&segment)
            .cloned()
            .unwrap_or_default();
        entries.extend(sale.entries(segment).await);
        for entry in entries {
            if let Change::Taken {
                expires_at, orders, ..
            } = entry.change
            {
                taken.extend(
                    orders
                        .into_iter()
                        .map(|order| (segment, expires_at.as_millisecond(), order)),
                );
            }
        }
    }
    taken.sort_by_key(|(_, _, order)| order.id.attempt());
    for (
        segment,
        expires_ms,
        TakenOrder {
            id,
            buyer,
            quantity,
        },
    ) in taken
    {
        let has_units = holdings.iter().any(|back| back.order.id == id);
        let memory = Memory {
            order: id.first(),
            attempt: id.attempt(),
            segment,
            buyer,
            quantity,
            expires_ms,
            taken: has_units,
        };
        memories.insert(id.first(), memory);
    }
    memories.into_values().collect()
}

/// As a reconciler does it.
async fn repair(sale: &Sale, segment: u16, token: u64, available: u64, epoch: u64) -> Adjusted {
    let memories = memories(sale).await;
    let halted = sale.halted(segment, token).await;
    let restoration = sale
        .stock
        .restore(&sale.item, &halted, &memories, &[])
        .await
        .unwrap();
    sale.stock
        .adjust(&sale.item, &halted, restoration, available, epoch)
        .await
        .unwrap()
}

/// Orders by id, so that reacquisitions can be repeated, too.
struct Asked {
    reservation: Reservation,
    outcome: Outcome,
}

/// What a repeat of the order answers, if the order has a record.
fn repeated(outcome: &Outcome) -> Option<Outcome> {
    match outcome {
        Outcome::Held { expires_at, .. } => Some(Outcome::Held {
            expires_at: *expires_at,
            price: None,
            replayed: true,
            recorded: false,
        }),
        Outcome::Released => Some(Outcome::Released),
        _ => None,
    }
}

/// Orders of all kinds: at home and elsewhere, released, and taken again after that.
async fn lively_sale(sale: &Arc<Sale>) -> Vec<Asked> {
    let item = sale.at_first();
    let reservations: Vec<_> = (0..40)
        .map(|n| {
            sale.reservation(
                &buyer(n % 30),
                &format!("k{}", n / 30),
                // Orders for several units would wait for fragments.
                1,
            )
        })
        .collect();
    all_answered(&[Arc::clone(&item)], reservations.clone()).await;
    let holdings = sale.holdings().await;
    let back: Vec<Release> = holdings.into_iter().step_by(3).collect();
    assert!(back.len() > 5);
    item.release(&back).await.unwrap();
    let reacquire = |Release { order, .. }: &Release| {
        let (order, quantity, reservation) = (
            order.id.reacquire(1),
            order.quantity,
            sale.reservation(&order.buyer, "reacquisition", 1),
        );
        Reservation {
            order,
            quantity,
            ..reservation
        }
    };
    // The reacquisitions first: a buyer who was refused may buy what came back, too.
    let reacquisitions: Vec<_> = back.iter().step_by(2).map(reacquire).collect();
    let mut asked = Vec::new();
    for reservation in reacquisitions.into_iter().chain(reservations) {
        asked.push(Asked {
            outcome: item.order(reservation.clone()).await.unwrap(),
            reservation,
        });
    }
    // One that was taken again and released again.
    let again = sale
        .holdings()
        .await
        .into_iter()
        .find(|back| back.order.id.attempt() == 1)
        .unwrap();
    item.release(std::slice::from_ref(&again)).await.unwrap();
    asked
        .iter_mut()
        .find(|asked| asked.reservation.order == again.order.id)
        .unwrap()
        .outcome = Outcome::Released;
    asked
}

#[tested(on_both)]
async fn an_emptied_segment_is_restored_with_every_decision_and_count(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(30, 3).limit(6)).await;
    let asked = lively_sale(&sale).await;
    let before = sale.dumps().await;
    for segment in 0..3 {
        sale.lose(segment).await;
        let token = 10 - u64::from(segment);
        let available = before[usize::from(segment)].available();
        let Adjusted { entry, .. } = repair(&sale, segment, token, available, 2).await;
        let inspection = sale
            .stock
            .inspect(&sale.segment(segment), InspectionEntries::From(entry))
            .await
            .unwrap();
        assert_eq!(
            (inspection.available, inspection.last, inspection.repairing),
            (available, entry, None)
        );
        let dump = sale.dump(segment).await;
        assert_eq!(
            dump.buyers,
            before[usize::from(segment)].buyers,
            "counts of buyers"
        );
        assert_eq!(dump.gave_back, before[usize::from(segment)].gave_back);
    }
    let instances = instances(&sale, 2).await;
    let mut records = 0;
    for Asked {
        reservation,
        outcome,
    } in &asked
    {
        let Some(expected) = repeated(outcome) else {
            continue;
        };
        records += 1;
        for instance in &instances {
            assert_eq!(
                instance.order(reservation.clone()).await.unwrap(),
                expected,
                "{}",
                reservation.order
            );
        }
    }
    assert!(records > 20, "{records} orders with a record");
    let available: u64 = before.iter().map(sale::Dump::available).sum();
    assert_eq!(sale.available().await, available);
    // Held units return to a segment whose decisions were restored.
    let held: u64 = sale
        .holdings()
        .await
        .iter()
        .map(|back| u64::from(back.order.quantity.get()))
        .sum();
    sale.at_first()
        .release(&sale.holdings().await)
        .await
        .unwrap();
    assert_eq!(sale.available().await, available + held);
}

#[tested(on_both)]
async fn counts_are_restored_with_those_of_unfinished_spillovers(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(4, 2).limit(9)).await;
    let (ann, bob) = (sale.buyer_at(1, 0), sale.buyer_at(1, 1));
    assert!(sale.sells(&ann, "here", 2).await);
    let deadline = sale.now_ms().await + 60_000;
    // One spillover that took elsewhere and was not finished, and one that is under way.
    sale.begin_spillover(&ann, "there", 1, deadline).await;
    assert_eq!(
        sale.continue_spillover(0, &ann, "there", 1, deadline).await,
        "taken"
    );
    sale.begin_spillover(&ann, "under-way", 3, deadline).await;
    sale.begin_spillover(&bob, "under-way", 1, deadline).await;
    let counts = sale.dump(1).await.buyers;
    assert_eq!(counts, [(ann.to_string(), 6), (bob.to_string(), 1)].into());
    // A count is wrong.
    let mut wrong = redis::cmd("HSET");
    wrong
        .arg(sale.names(1).buyers)
        .arg(ann.as_str())
        .arg(1)
        .arg(bob.as_str())
        .arg(8);
    let _: i64 = sale.redis(&wrong).await;
    repair(&sale, 1, 3, 0, 2).await;
    let home = sale.dump(1).await;
    assert_eq!(home.buyers, counts);
    for (buyer, key, kind) in [
        (&ann, "here", 'T'),
        (&ann, "there", 'E'),
        (&ann, "under-way", 'D'),
        (&bob, "under-way", 'D'),
    ] {
        assert!(
            home.decision(sale.order_id(buyer, key))
                .unwrap()
                .starts_with(kind),
            "{buyer} {key}"
        );
    }
    // The spillovers go on as if nothing had been.
    assert_eq!(sale.order(&ann, "under-way", 3).await, Outcome::SoldOut);
    assert!(sale.sells(&bob, "under-way", 1).await);
}

#[tested(on_both)]
async fn a_repairer_that_lost_the_item_lock_is_fenced(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(4, 1)).await;
    let key = sale.segment(0);
    let older = sale
        .stock
        .halt(&key, 7, stock::OldMemory::Keep)
        .await
        .unwrap();
    let newer = sale
        .stock
        .halt(&key, 8, stock::OldMemory::Keep)
        .await
        .unwrap();
    let none = Restoration::default();
    let memory = Memory {
        order: sale.order_id(&buyer(0), "k"),
        attempt: 0,
        segment: 0,
        buyer: buyer(0),
        quantity: Quantity::ONE,
        expires_ms: 0,
        taken: true,
    };
    for refused in [
        sale.stock
            .halt(&key, 7, stock::OldMemory::Keep)
            .await
            .map(drop),
        sale.stock
            .restore(&sale.item, &older, &[memory], &[])
            .await
            .map(drop),
        sale.stock
            .adjust(&sale.item, &older, none, 9, 2)
            .await
            .map(drop),
        sale.stock
            .adjust(
                &sale.item,
                &Halted {
                    token: 7,
                    ..newer.clone()
                },
                none,
                9,
                2,
            )
            .await
            .map(drop),
    ] {
        assert!(
            matches!(&refused, Err(StockError::Fenced { segment, fence: 8 }) if *segment == key),
            "{refused:?}"
        );
        assert!(!refused.unwrap_err().is_retryable());
    }
    let moved = sale
        .stock
        .adjust(&sale.item, &Halted { token: 8, ..older }, none, 9, 2)
        .await;
    assert!(
        matches!(&moved, Err(error @ StockError::Moved(_)) if error.is_retryable()),
        "{moved:?}"
    );
    sale.stock
        .adjust(&sale.item, &newer, none, 4, 2)
        .await
        .unwrap();
    assert!(sale.sells(&buyer(0), "k", 4).await);
}

#[tested(on_both)]
async fn more_orders_than_fit_into_one_call_are_restored(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(2500, 1)).await;
    let buyers: Vec<BuyerId> = (0..2500).map(buyer).collect();
    let reservations = buyers
        .iter()
        .map(|buyer| sale.reservation(buyer, "k", 1))
        .collect();
    all_answered(&[sale.at_first()], reservations).await;
    let holdings = sale.holdings().await;
    assert_eq!(
        sale.at_first().release(&holdings[..1200]).await.unwrap(),
        1200,
        "nor do these fit into one"
    );
    let before = sale.dump(0).await;
    sale.lose(0).await;
    repair(&sale, 0, 1, 1200, 2).await;
    let after = sale.dump(0).await;
    let kinds = |dump: &sale::Dump| {
        dump.decisions
            .iter()
            .map(|(id, decision)| (id.clone(), decision.chars().next()))
            .collect::<Vec<_>>()
    };
    assert_eq!(kinds(&after), kinds(&before));
    assert_eq!(
        (after.buyers, after.gave_back),
        (before.buyers, before.gave_back)
    );
}

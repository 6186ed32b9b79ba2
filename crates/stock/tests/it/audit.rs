//! The identity, held against the raw keys of every segment: what was put in is there or was taken,
//! once, by an order that is counted; and what came back, was moved or was set by hand is in the
//! entries.

use std::collections::{BTreeMap, BTreeSet};

use domain::{BuyerId, Change, Entry, OrderId, TakenOrder, TransferId};

use crate::sale::{Dump, Sale, eventually};

/// A segment's keys, and all entries that its outbox ever had.
struct Book {
    segment: u16,
    dump: Dump,
    entries: Vec<Entry>,
    taken: Vec<TakenOrder>,
    released: Vec<TakenOrder>,
}

/// Panics with the difference, if there is one.
pub async fn audit(sale: &Sale) {
    // The test may have restarted the server.
    eventually("the server being there", async || {
        sale.stock.ready().await.is_ok()
    })
    .await;
    let mut books = Vec::new();
    for segment in 0..sale.item.segments {
        books.push(read(sale, segment).await);
    }
    for book in &books {
        the_entries_lead_to_what_is_available(sale, book);
        taken_decisions_are_the_taken_entries(book);
        transfers_are_remembered(book);
    }
    no_order_took_twice(&books);
    final_decisions_are_true(sale, &books);
    released_permanently(sale, &books);
    buyers_are_counted(sale, &books);
}

async fn read(sale: &Sale, segment: u16) -> Book {
    let inspection = sale.inspected(segment).await;
    let mut entries = sale
        .trimmed
        .lock()
        .unwrap()
        .get(&segment)
        .cloned()
        .unwrap_or_default();
    entries.extend(inspection.entries);
    assert!(
        entries.is_sorted_by(|a, b| a.id < b.id),
        "segment {segment}: entries out of order"
    );
    assert_eq!(
        entries.last().unwrap().id,
        inspection.last,
        "segment {segment}: the last entry is not what the segment says"
    );
    assert_eq!(
        entries[0].change,
        Change::Opened {
            units: sale.item.share(segment),
            epoch: sale.item.epoch
        }
    );
    let (taken, released) = (orders(&entries, taken), orders(&entries, released));
    Book {
        segment,
        dump: sale.dump(segment).await,
        entries,
        taken,
        released,
    }
}

fn orders(entries: &[Entry], of: impl Fn(&Change) -> &[TakenOrder]) -> Vec<TakenOrder> {
    entries
        .iter()
        .flat_map(|entry| of(&entry.change))
        .cloned()
        .collect()
}

fn taken(change: &Change) -> &[TakenOrder] {
    match change {
        Change::Taken { orders, .. } => orders,
        _ => &[],
    }
}

fn released(change: &Change) -> &[TakenOrder] {
    match change {
        Change::Released { orders } => orders,
        _ => &[],
    }
}

/// What the recorder, too, makes of them.
fn the_entries_lead_to_what_is_available(sale: &Sale, book: &Book) {
    let replay = |available: i64, entry: &Entry| match (&entry.change, entry.change.effect()) {
        (_, Some(effect)) => available + effect,
        (Change::Opened { units, .. } | Change::Adjusted { units, .. }, _) => {
            i64::try_from(*units).unwrap()
        }
        (change, None) => panic!("{change:?} sets the counter to something that it does not say"),
    };
    let given_back = sale
        .given_back
        .lock()
        .unwrap()
        .get(&book.segment)
        .copied()
        .unwrap_or(0);
    let replayed = book.entries.iter().fold(0, replay) + given_back;
    let available: i64 = book.dump.stock["available"].parse().unwrap();
    assert!(
        available >= 0,
        "{}:{} has {available} units",
        sale.item.id,
        book.segment
    );
    assert_eq!(
        available, replayed,
        "{}:{}: what is available is not what the entries lead to",
        sale.item.id, book.segment
    );
}

fn taken_decisions_are_the_taken_entries(book: &Book) {
    let mut expected: BTreeMap<_, _> = book.taken.iter().map(|order| (order.id, order)).collect();
    for order in &book.released {
        assert_eq!(
            expected.remove(&order.id),
            Some(order),
            "segment {}: {} gave back what it did not have",
            book.segment,
            order.id
        );
    }
    let expected: BTreeMap<_, _> = expected
        .into_iter()
        .map(|(id, order)| (id, order.quantity.get()))
        .collect();
    let found: BTreeMap<_, _> = decisions(&book.dump)
        .filter(|decision| decision.kind == 'T')
        .map(|decision| (decision.order, decision.units))
        .collect();
    assert_eq!(
        found, expected,
        "segment {}: what was taken and not given back is not what is remembered",
        book.segment
    );
}

/// A segment that lost its keys has forgotten transfers; a repeat of one comes with a token that is
/// too low by now.
fn transfers_are_remembered(book: &Book) {
    let mut moved = BTreeMap::new();
    for entry in &book.entries {
        let (kind, transferred) = match entry.change {
            Change::TransferredOut(transferred) => ('O', transferred),
            Change::TransferredIn(transferred) => ('I', transferred),
            _ => continue,
        };
        assert!(
            moved
                .insert(transferred.id, (kind, transferred.units))
                .is_none(),
            "transfer {} moved units twice",
            transferred.id
        );
    }
    for (id, decision) in book
        .dump
        .decisions
        .iter()
        .filter(|(_, decision)| decision.starts_with(['O', 'I']))
    {
        let id = TransferId::from_bytes(id.as_slice().try_into().unwrap());
        let remembered = (
            decision.chars().next().unwrap(),
            decision[1..].parse().unwrap(),
        );
        assert_eq!(
            moved.get(&id),
            Some(&remembered),
            "segment {}: transfer {id}",
            book.segment
        );
    }
}

fn no_order_took_twice(books: &[Book]) {
    let mut seen = BTreeSet::new();
    for order in books.iter().flat_map(|book| &book.taken) {
        assert!(seen.insert(order.id), "order {} took twice", order.id);
    }
}

/// "Elsewhere" names who has the units, and what is sold out has none anywhere.
fn final_decisions_are_true(sale: &Sale, books: &[Book]) {
    let mut holder: BTreeMap<_, _> = books
        .iter()
        .flat_map(|book| book.taken.iter().map(|order| (order.id, book.segment)))
        .collect();
    for order in books.iter().flat_map(|book| &book.released) {
        holder.remove(&order.id);
    }
    for decision in books.iter().flat_map(|book| decisions(&book.dump)) {
        match decision.kind {
            'E' => assert_eq!(
                holder.get(&decision.order).copied(),
                decision.place,
                "{}: {}",
                sale.item.id,
                decision.order
            ),
            'S' => assert_eq!(
                holder.get(&decision.order),
                None,
                "{}: {} is called sold out",
                sale.item.id,
                decision.order
            ),
            _ => {}
        }
    }
}

/// A released order has its decision where the units were and at home, and its buyer is marked for
/// the sold-out cache. A repaired segment has the decision of an order's last attempt; of the
/// others home knows.
fn released_permanently(sale: &Sale, books: &[Book]) {
    for book in books {
        for order in &book.released {
            let home = &books[usize::from(home(sale, &order.buyer))];
            let released = |dump: &Dump| {
                dump.decision(order.id)
                    .is_some_and(|decision| decision.starts_with(&format!("R{}:", order.quantity)))
            };
            let was_lost = sale.lost.lock().unwrap().contains(&book.segment)
                && book.dump.decision(order.id).is_none();
            assert!(
                released(&home.dump) && (was_lost || released(&book.dump)),
                "{}: {} was released",
                sale.item.id,
                order.id
            );
            assert!(
                home.dump.gave_back.contains(order.buyer.as_str()),
                "{}: {} gave something back",
                sale.item.id,
                order.buyer
            );
        }
    }
}

fn home(sale: &Sale, buyer: &BuyerId) -> u16 {
    u16::try_from(buyer.stable_hash() % u64::from(sale.item.segments)).unwrap()
}

/// A buyer's count at home is what his orders hold, and what those that still spillover would hold;
/// but for an order whose count was released and whose units are still to be returned.
fn buyers_are_counted(sale: &Sale, books: &[Book]) {
    let mut counts: BTreeMap<(u16, String), i64> = BTreeMap::new();
    let took: BTreeSet<OrderId> = books
        .iter()
        .flat_map(|book| book.taken.iter().map(|order| order.id))
        .collect();
    let gave_back: BTreeSet<OrderId> = books
        .iter()
        .flat_map(|book| book.released.iter().map(|order| order.id))
        .collect();
    for order in books
        .iter()
        .flat_map(|book| &book.taken)
        .filter(|order| !gave_back.contains(&order.id))
    {
        let home = home(sale, &order.buyer);
        if !books[usize::from(home)]
            .dump
            .decision(order.id)
            .is_some_and(|decision| decision.starts_with('R'))
        {
            *counts.entry((home, order.buyer.to_string())).or_default() +=
                i64::from(order.quantity.get());
        }
    }
    for book in books {
        for (spillover_worker, units) in unfinished_spillovers(&book.dump) {
            assert_eq!(
                home(sale, &spillover_worker.1),
                book.segment,
                "a spillover in the list of a segment that is not its home"
            );
            if !took.contains(&spillover_worker.0) {
                *counts
                    .entry((book.segment, spillover_worker.1.to_string()))
                    .or_default() += units;
            }
        }
    }
    let found = books.iter().flat_map(|book| {
        book.dump
            .buyers
            .iter()
            .map(|(buyer, count)| ((book.segment, buyer.clone()), *count))
    });
    assert_eq!(
        found.collect::<BTreeMap<_, _>>(),
        counts,
        "{}: counts of buyers",
        sale.item.id
    );
    if let Some(limit) = most_allowed(sale, books) {
        assert!(
            counts.values().all(|count| *count <= limit),
            "{}: a buyer holds more than the limit",
            sale.item.id
        );
    }
}

/// The item's limit, or that of today if it has been raised. `None`: none.
fn most_allowed(sale: &Sale, books: &[Book]) -> Option<i64> {
    let today = books
        .iter()
        .map(|book| book.dump.stock["limit"].parse::<i64>().unwrap());
    let at_first = sale
        .item
        .limit_per_buyer
        .map_or(0, |limit| limit.get().into());
    today
        .chain([at_first])
        .reduce(|a, b| if a == 0 || b == 0 { 0 } else { a.max(b) })
        .filter(|limit| *limit > 0)
}

/// Spillovers that home still answers with "declined".
fn unfinished_spillovers(dump: &Dump) -> Vec<((OrderId, BuyerId), i64)> {
    let mut unfinished = Vec::new();
    for packed in dump.spillovers.keys() {
        let order = OrderId::from_bytes(packed[..16].try_into().unwrap());
        let units = i64::from(u32::from_be_bytes(packed[16..20].try_into().unwrap()));
        let buyer = BuyerId::new(std::str::from_utf8(&packed[21..]).unwrap()).unwrap();
        assert_eq!(usize::from(packed[20]), buyer.as_str().len());
        if dump
            .decision(order)
            .is_some_and(|decision| decision.starts_with('D'))
        {
            unfinished.push(((order, buyer), units));
        }
    }
    unfinished
}

struct Remembered {
    order: OrderId,
    kind: char,
    units: u32,
    place: Option<u16>,
}

/// Answers to orders; what is remembered of transfers is left out.
fn decisions(dump: &Dump) -> impl Iterator<Item = Remembered> {
    dump.decisions
        .iter()
        .filter(|(_, decision)| !decision.starts_with(['O', 'I']))
        .map(|(order, decision)| {
            let mut parts = decision[1..].split([':', 'x']);
            Remembered {
                order: OrderId::from_bytes(order.as_slice().try_into().unwrap()),
                kind: decision.chars().next().unwrap(),
                units: parts.next().unwrap().parse().unwrap(),
                place: parts.nth(1).map(|place| place.parse().unwrap()),
            }
        })
}

//! The identity, held against the raw keys of every segment: what was put in is there or was taken, once, by an order that is counted.

use std::collections::{BTreeMap, BTreeSet};

use domain::{BuyerId, Change, Entry, OrderId, TakenOrder};
use stock::InspectionEntries;

use crate::sale::{Dump, Sale, eventually};

/// A segment's keys, and all entries that its outbox ever had.
struct Book {
    segment: u16,
    dump: Dump,
    taken: Vec<TakenOrder>,
}

/// Panics with the difference, if there is one.
pub async fn audit(sale: &Sale) {
    // The test may have restarted the server.
    eventually("the server being there", async || sale.stock.ready().await.is_ok()).await;
    let mut books = Vec::new();
    for segment in 0..sale.item.segments {
        books.push(read(sale, segment).await);
    }
    for book in &books {
        units_are_there_or_taken(sale, book);
        taken_answers_are_the_taken_entries(book);
    }
    no_order_took_twice(&books);
    final_answers_are_true(sale, &books);
    buyers_are_counted(sale, &books);
}

async fn read(sale: &Sale, segment: u16) -> Book {
    let inspection = sale.stock.inspect(&sale.segment(segment), InspectionEntries::All).await.unwrap();
    let mut entries = sale.trimmed.lock().unwrap().get(&segment).cloned().unwrap_or_default();
    entries.extend(inspection.entries);
    assert!(entries.is_sorted_by(|a, b| a.id < b.id), "segment {segment}: entries out of order");
    assert_eq!(entries.last().unwrap().id, inspection.last, "segment {segment}: the last entry is not what the segment says");
    assert_eq!(entries[0].change, Change::Opened { units: sale.item.share(segment), epoch: sale.item.epoch });
    Book { segment, dump: sale.dump(segment).await, taken: entries.into_iter().flat_map(taken).collect() }
}

fn taken(entry: Entry) -> Vec<TakenOrder> {
    match entry.change {
        Change::Taken { orders, .. } => orders,
        _ => vec![],
    }
}

fn units_are_there_or_taken(sale: &Sale, book: &Book) {
    let given_back = sale.given_back.lock().unwrap().get(&book.segment).copied().unwrap_or(0);
    let put_in = i64::try_from(sale.item.share(book.segment)).unwrap() + given_back;
    let taken: i64 = book.taken.iter().map(|order| i64::from(order.quantity.get())).sum();
    let available: i64 = book.dump.stock["available"].parse().unwrap();
    assert!(available >= 0, "{}:{} has {available} units", sale.item.id, book.segment);
    assert_eq!(available + taken, put_in, "{}:{}: {available} available and {taken} taken", sale.item.id, book.segment);
}

fn taken_answers_are_the_taken_entries(book: &Book) {
    let entries: BTreeMap<_, _> = book.taken.iter().map(|order| (order.id, order.quantity.get())).collect();
    let answers: BTreeMap<_, _> =
        answers(&book.dump).filter(|answer| answer.kind == 'T').map(|answer| (answer.order, answer.units)).collect();
    assert_eq!(entries, answers, "segment {}: what was taken is not what is remembered", book.segment);
}

fn no_order_took_twice(books: &[Book]) {
    let mut seen = BTreeSet::new();
    for order in books.iter().flat_map(|book| &book.taken) {
        assert!(seen.insert(order.id), "order {} took twice", order.id);
    }
}

/// "Elsewhere" names who has the units, and what is sold out has none anywhere.
fn final_answers_are_true(sale: &Sale, books: &[Book]) {
    let holder: BTreeMap<_, _> = books.iter().flat_map(|book| book.taken.iter().map(|order| (order.id, book.segment))).collect();
    for answer in books.iter().flat_map(|book| answers(&book.dump)) {
        match answer.kind {
            'E' => assert_eq!(holder.get(&answer.order).copied(), answer.place, "{}: {}", sale.item.id, answer.order),
            'S' => assert_eq!(holder.get(&answer.order), None, "{}: {} is called sold out", sale.item.id, answer.order),
            _ => {}
        }
    }
}

/// A buyer's count at home is what his orders hold, and what those that still walk would hold.
fn buyers_are_counted(sale: &Sale, books: &[Book]) {
    let home = |buyer: &BuyerId| u16::try_from(buyer.stable_hash() % u64::from(sale.item.segments)).unwrap();
    let mut counts: BTreeMap<(u16, String), i64> = BTreeMap::new();
    for order in books.iter().flat_map(|book| &book.taken) {
        *counts.entry((home(&order.buyer), order.buyer.to_string())).or_default() += i64::from(order.quantity.get());
    }
    let took: BTreeSet<OrderId> = books.iter().flat_map(|book| book.taken.iter().map(|order| order.id)).collect();
    for book in books {
        for (walker, units) in unfinished_walks(&book.dump) {
            assert_eq!(home(&walker.1), book.segment, "a walk in the list of a segment that is not its home");
            if !took.contains(&walker.0) {
                *counts.entry((book.segment, walker.1.to_string())).or_default() += units;
            }
        }
    }
    let found = books.iter().flat_map(|book| book.dump.buyers.iter().map(|(buyer, count)| ((book.segment, buyer.clone()), *count)));
    assert_eq!(found.collect::<BTreeMap<_, _>>(), counts, "{}: counts of buyers", sale.item.id);
    if let Some(limit) = sale.item.limit_per_buyer {
        assert!(counts.values().all(|count| *count <= i64::from(limit.get())), "{}: a buyer holds more than the limit", sale.item.id);
    }
}

/// Walks that home still answers with "passed".
fn unfinished_walks(dump: &Dump) -> Vec<((OrderId, BuyerId), i64)> {
    let mut unfinished = Vec::new();
    for packed in dump.walks.keys() {
        let order = OrderId::from_bytes(packed[..16].try_into().unwrap());
        let units = i64::from(u32::from_be_bytes(packed[16..20].try_into().unwrap()));
        let buyer = BuyerId::new(std::str::from_utf8(&packed[21..]).unwrap()).unwrap();
        assert_eq!(usize::from(packed[20]), buyer.as_str().len());
        if dump.answer(order).is_some_and(|answer| answer.starts_with('P')) {
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

fn answers(dump: &Dump) -> impl Iterator<Item = Remembered> {
    dump.answers.iter().map(|(order, answer)| {
        let mut parts = answer[1..].split(':');
        Remembered {
            order: OrderId::from_bytes(order.as_slice().try_into().unwrap()),
            kind: answer.chars().next().unwrap(),
            units: parts.next().unwrap().parse().unwrap(),
            place: parts.nth(1).map(|place| place.parse().unwrap()),
        }
    })
}

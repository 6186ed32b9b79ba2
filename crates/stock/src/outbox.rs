//! The log of a segment: its entries, their bytes and fingerprints, and the message that names the
//! recorded ones. `stock/outbox.rs` reads, trims and announces it.

use domain::{
    BuyerId, Change, Entry, EntryId, OrderId, Quantity, SegmentKey, TakenOrder, Transferred,
};
use jiff::Timestamp;

use crate::{StockError, reply::ReplyReader};

/// An order as the scripts append it to the outbox and keep it in `spillovers`: id (16 bytes),
/// quantity (4, big-endian), length of the buyer id (1), buyer id. The scripts only cut off the
/// first 16 bytes and concatenate packed orders.
pub(crate) fn pack(id: &OrderId, buyer: &BuyerId, quantity: Quantity) -> Box<[u8]> {
    let buyer = buyer.as_str().as_bytes();
    let mut packed = Vec::with_capacity(21 + buyer.len());
    packed.extend_from_slice(id.as_bytes());
    packed.extend_from_slice(&quantity.get().to_be_bytes());
    packed.push(u8::try_from(buyer.len()).unwrap_or(u8::MAX)); // BuyerId::MAX_LEN is 128
    packed.extend_from_slice(buyer);
    packed.into()
}

/// The first packed order of `bytes`, and the rest.
pub(crate) fn unpack(bytes: &[u8]) -> Option<(TakenOrder, &[u8])> {
    let (id, rest) = bytes.split_first_chunk::<16>()?;
    let (quantity, rest) = rest.split_first_chunk::<4>()?;
    let (&length, rest) = rest.split_first()?;
    let (buyer, rest) = rest.split_at_checked(length.into())?;
    let order = TakenOrder {
        id: OrderId::from_bytes(*id),
        quantity: Quantity::new(u32::from_be_bytes(*quantity)).ok()?,
        buyer: BuyerId::new(std::str::from_utf8(buyer).ok()?).ok()?,
    };
    Some((order, rest))
}

fn unpack_all(mut bytes: &[u8]) -> Option<Vec<TakenOrder>> {
    let mut orders = Vec::new();
    while !bytes.is_empty() {
        let (order, rest) = unpack(bytes)?;
        orders.push(order);
        bytes = rest;
    }
    Some(orders)
}

/// Reads a list of stream entries as `XRANGE` returns them.
pub(crate) fn decode_entries(mut list: ReplyReader) -> Result<Vec<Entry>, StockError> {
    let mut entries = Vec::new();
    while !list.is_empty() {
        let mut entry = list.list()?;
        let id = entry.parse()?;
        entries.push(decode_entry(id, entry.list()?)?);
    }
    Ok(entries)
}

fn decode_entry(id: EntryId, mut fields: ReplyReader) -> Result<Entry, StockError> {
    let mut pairs = Vec::with_capacity(4);
    while !fields.is_empty() {
        pairs.push((fields.bytes()?, fields.bytes()?));
    }
    let fingerprint = fingerprint(
        pairs
            .iter()
            .map(|(name, value)| (name.as_slice(), value.as_slice())),
    );
    let field = |wanted: &[u8]| {
        pairs
            .iter()
            .find(|(name, _)| name == wanted)
            .map(|(_, value)| value.as_slice())
    };
    let change = decode_change(field)
        .ok_or_else(|| StockError::Unreadable(format!("expected an outbox entry at {id}")))?;
    Ok(Entry {
        id,
        fingerprint,
        change,
    })
}

fn fingerprint<'a>(pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> i64 {
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    for (name, value) in pairs {
        hash.update(name);
        hash.update(value);
    }
    hash.digest().cast_signed()
}

/// The fingerprint of the entry that a batch of reservations writes, from the orders that took
/// units, in their order.
pub(crate) struct TakenHash(xxhash_rust::xxh3::Xxh3);

impl TakenHash {
    pub(crate) fn new(expires_ms: i64, price: Option<u64>) -> Self {
        let mut hash = xxhash_rust::xxh3::Xxh3::new();
        hash.update(b"ktakenx");
        hash.update(expires_ms.to_string().as_bytes());
        if let Some(price) = price {
            hash.update(b"p");
            hash.update(price.to_string().as_bytes());
        }
        hash.update(b"o");
        Self(hash)
    }

    pub(crate) fn take(&mut self, packed: &[u8]) {
        self.0.update(packed);
    }

    pub(crate) fn fingerprint(&self) -> i64 {
        self.0.digest().cast_signed()
    }
}

/// The fingerprint of the entry that `adjust` writes, without reading it back.
pub(crate) fn fingerprint_of_adjusted(units: u64, epoch: u64, token: u64) -> i64 {
    let values = [units, epoch, token].map(|number| number.to_string());
    let names: [&[u8]; 3] = [b"u", b"e", b"t"];
    let numbers = names.into_iter().zip(values.iter().map(String::as_bytes));
    fingerprint(std::iter::once((&b"k"[..], &b"adjusted"[..])).chain(numbers))
}

fn decode_change<'a>(field: impl Fn(&[u8]) -> Option<&'a [u8]>) -> Option<Change> {
    let field = &field;
    let number = |name: &[u8]| std::str::from_utf8(field(name)?).ok()?.parse::<u64>().ok();
    Some(match field(b"k")? {
        b"opened" => Change::Opened {
            units: number(b"u")?,
            epoch: number(b"e")?,
        },
        b"state" => Change::StateSet {
            epoch: number(b"e")?,
        },
        b"taken" => Change::Taken {
            expires_at: Timestamp::from_millisecond(number(b"x")?.try_into().ok()?).ok()?,
            price: match field(b"p") {
                Some(_) => Some(number(b"p")?),
                None => None,
            },
            orders: unpack_all(field(b"o")?)?,
        },
        b"released" => Change::Released {
            orders: unpack_all(field(b"o")?)?,
        },
        b"out" => Change::TransferredOut(transferred(field)?),
        b"in" => Change::TransferredIn(transferred(field)?),
        b"halted" => Change::Halted {
            token: number(b"t")?,
        },
        b"adjusted" => Change::Adjusted {
            units: number(b"u")?,
            epoch: number(b"e")?,
            token: number(b"t")?,
        },
        _ => return None,
    })
}

fn transferred<'a>(field: impl Fn(&[u8]) -> Option<&'a [u8]>) -> Option<Transferred> {
    let text = |name: &[u8]| std::str::from_utf8(field(name)?).ok();
    Some(Transferred {
        id: text(b"i")?.parse().ok()?,
        units: text(b"u")?.parse().ok()?,
        token: text(b"t")?.parse().ok()?,
    })
}

/// The recorder's message that the ledger has recorded entries of an outbox in which orders took
/// units.
///
/// It names each entry by id and fingerprint. A reader that missed an earlier message cannot learn
/// from this one which orders of the earlier one were rejected. And an entry that a failover lost
/// does not count as recorded because later ones are: its id may be free now, or in use again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedEntries {
    /// The segment of the outbox.
    pub segment: SegmentKey,
    /// The entries, in order, with their fingerprints.
    pub entries: Vec<(EntryId, i64)>,
    /// Orders of these entries that the ledger could not cover.
    pub rejected: Vec<OrderId>,
}

impl RecordedEntries {
    /// Whether the entry is among them.
    pub(crate) fn has(&self, entry: EntryId, fingerprint: i64) -> bool {
        self.entries
            .binary_search_by_key(&entry, |(id, _)| *id)
            .is_ok_and(|place| self.entries[place].1 == fingerprint)
    }

    pub(crate) fn encode(&self) -> String {
        let entries: Vec<_> = self
            .entries
            .iter()
            .map(|(id, fingerprint)| format!("{id}:{fingerprint}"))
            .collect();
        let mut text = format!("{} {}", self.segment, entries.join(","));
        for order in &self.rejected {
            text.push(' ');
            text.push_str(&order.to_string());
        }
        text
    }

    pub(crate) fn decode(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let segment = words.next()?.parse().ok()?;
        let entry = |text: &str| {
            text.split_once(':')
                .and_then(|(id, fingerprint)| Some((id.parse().ok()?, fingerprint.parse().ok()?)))
        };
        let entries = words.next()?.split(',').map(entry).collect::<Option<_>>()?;
        let rejected = words.map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(Self {
            segment,
            entries,
            rejected,
        })
    }
}

/// A range of a segment's outbox.
#[derive(Debug, Clone)]
pub struct OutboxRead {
    /// The segment of the outbox.
    pub segment: SegmentKey,
    /// The first entry; `None`: from the beginning.
    pub from: Option<EntryId>,
    /// The largest number of entries to read.
    pub at_most: usize,
}

/// The result of a trim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trimmed {
    /// Entries that were dropped.
    pub dropped: u64,
    /// Entries that were left, the anchor included. Once the anchor is alone, the next append sends
    /// a wake-up.
    pub left: u64,
}

/// A recorder's announcement for a segment.
#[derive(Debug, Clone)]
pub struct Announcement {
    /// The recorded entries that buyers may wait for.
    pub recorded: RecordedEntries,
    /// The last recorded entry. Everything before it is recorded too.
    pub checkpoint: EntryId,
}

#[cfg(test)]
mod tests {
    use domain::{BuyerId, EntryId, OrderId, Quantity, SegmentKey};

    use super::{RecordedEntries, TakenHash, fingerprint, pack, unpack, unpack_all};

    #[test]
    fn a_packed_order_reads_back() {
        let (id, buyer) = (OrderId::from_bytes([7; 16]), BuyerId::new("安娜").unwrap());
        let quantity = Quantity::new(70_000).unwrap();
        let packed = pack(&id, &buyer, quantity);
        let twice = [&*packed, &*packed].concat();
        assert_eq!(unpack_all(&twice).unwrap().len(), 2);
        let (order, rest) = unpack(&packed).unwrap();
        assert_eq!(
            (order.id, order.buyer, order.quantity),
            (id, buyer, quantity)
        );
        assert!(rest.is_empty());
        for cut in 0..packed.len() {
            assert!(unpack(&packed[..cut]).is_none(), "cut at {cut}");
        }
    }

    #[test]
    fn a_message_reads_back_and_covers_the_entries_that_it_names() {
        let (segment, id): (SegmentKey, _) = ("vase:3".parse().unwrap(), |text: &str| {
            text.parse::<EntryId>().unwrap()
        });
        for rejected in [
            vec![],
            vec![OrderId::from_bytes([1; 16]), OrderId::from_bytes([2; 16])],
        ] {
            let recorded = RecordedEntries {
                segment: segment.clone(),
                entries: vec![(id("17-2"), -5), (id("18-0"), 6)],
                rejected,
            };
            assert_eq!(
                RecordedEntries::decode(&recorded.encode()).unwrap(),
                recorded
            );
            let known = [
                ("17-1", -5),
                ("17-2", -5),
                ("17-2", 6),
                ("17-3", 6),
                ("18-0", 6),
            ]
            .map(|(entry, print)| recorded.has(id(entry), print));
            assert_eq!(known, [false, true, false, false, true]);
        }
        assert!(RecordedEntries::decode("").is_none());
    }

    #[test]
    fn a_batch_has_the_fingerprint_of_its_entry() {
        let packed = [
            pack(
                &OrderId::from_bytes([1; 16]),
                &BuyerId::new("ann").unwrap(),
                Quantity::ONE,
            ),
            [7; 9].into(),
        ];
        let orders = packed.concat();
        let entry: [(&[u8], &[u8]); 4] = [
            (b"k", b"taken"),
            (b"x", b"1763"),
            (b"p", b"450"),
            (b"o", &orders),
        ];
        for price in [None, Some(450)] {
            let mut hash = TakenHash::new(1763, price);
            packed.iter().for_each(|packed| hash.take(packed));
            let pairs = entry
                .into_iter()
                .filter(|(name, _)| price.is_some() || *name != b"p");
            assert_eq!(hash.fingerprint(), fingerprint(pairs), "{price:?}");
        }
    }
}

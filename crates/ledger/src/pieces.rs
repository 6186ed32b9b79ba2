//! The pieces in which a walk reads the orders of an item.
//!
//! The ids of an item's orders are one range of the primary key. Behind the item's tag they begin
//! with the buyer's hash, so orders are spread evenly over the range. A piece is a part of the
//! range: it needs no second index and no cursor, and the part that was read is the share of the
//! orders that was read.

use domain::{ItemTag, OrderId};

use crate::convert::id_block;

/// Orders of one piece: less than a second of a server.
pub(crate) const PIECE_ORDERS: u64 = 500_000;

/// The range is cut at the 16 bits behind the tag. Not below: the bits that follow are not even.
const BLOCKS: u32 = 1 << 16;

/// The first piece, by which the walk learns how many orders there are.
const FIRST_BLOCKS: u32 = BLOCKS / 256;

/// What is left to read.
#[derive(Debug)]
pub(crate) struct Pieces {
    tag: ItemTag,
    target: u64,
    /// The first block that was not read.
    next: u32,
    /// Blocks of the piece that is being read, or is read next.
    width: u32,
    orders: u64,
}

impl Pieces {
    /// All orders of the items with this tag, about `target` at a time.
    pub fn new(tag: ItemTag, target: u64) -> Self {
        Self {
            tag,
            target: target.max(1),
            next: 0,
            width: FIRST_BLOCKS,
            orders: 0,
        }
    }

    /// The lowest and the highest id of the next piece. `None`: all were read.
    pub fn range(&self) -> Option<[OrderId; 2]> {
        let last = self.end().checked_sub(1)?;
        (self.next < BLOCKS).then(|| {
            // Both are below `BLOCKS`.
            let [first, last] =
                [self.next, last].map(|block| u16::try_from(block).unwrap_or(u16::MAX));
            id_block(self.tag, first, last)
        })
    }

    /// The piece was read, and had so many orders.
    pub fn read(&mut self, orders: u64) {
        let width = self.end() - self.next;
        self.next = self.end();
        self.orders += orders;
        let wanted = u64::from(width).saturating_mul(self.target) / orders.max(1);
        self.width = u32::try_from(wanted).unwrap_or(BLOCKS).clamp(1, BLOCKS);
    }

    /// Orders that were read.
    pub fn orders(&self) -> u64 {
        self.orders
    }

    /// The share of the range that was read.
    pub fn share(&self) -> f64 {
        f64::from(self.next) / f64::from(BLOCKS)
    }

    fn end(&self) -> u32 {
        (self.next + self.width).min(BLOCKS)
    }
}

#[cfg(test)]
mod tests {
    use domain::{ItemTag, OrderId};

    use super::{BLOCKS, Pieces};
    use crate::convert::id_range;

    /// Reads everything of an item with so many orders, and returns the ranges.
    fn all(orders: u64, target: u64) -> Vec<[OrderId; 2]> {
        let mut pieces = Pieces::new(ItemTag(7), target);
        let mut ranges = Vec::new();
        while let Some(range) = pieces.range() {
            let before = pieces.share();
            ranges.push(range);
            let blocks = u64::from(pieces.end() - pieces.next);
            pieces.read(orders * blocks / u64::from(BLOCKS));
            assert!(pieces.share() > before);
        }
        assert!((pieces.share() - 1.0).abs() < f64::EPSILON);
        ranges
    }

    #[test]
    fn pieces_cover_all_ids_of_the_item_once() {
        for (orders, target) in [(0, 1), (100, 5), (20_000_000, 500_000)] {
            let ranges = all(orders, target);
            let [first, last] = id_range(ItemTag(7));
            assert_eq!((ranges[0][0], ranges[ranges.len() - 1][1]), (first, last));
            for pair in ranges.windows(2) {
                let [end, next] = [pair[0][1], pair[1][0]].map(|id| id.as_uuid().as_u128());
                assert_eq!(end + 1, next);
            }
        }
    }

    #[test]
    fn there_are_as_many_pieces_as_the_orders_need() {
        assert_eq!(
            all(0, 500_000).len(),
            2,
            "the first one learns that it is empty"
        );
        assert_eq!(all(100_000, 500_000).len(), 2);
        let many = all(20_000_000, 500_000).len();
        assert!((40..50).contains(&many), "{many}");
    }
}

//! Items: what is sold, at what price, and when.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{ItemId, Quantity};

/// A product that is sold in a limited number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Id of the item.
    pub id: ItemId,
    /// The title shown to buyers.
    pub title: String,
    /// Number of units that exist.
    pub stock: u64,
    /// The price of one unit that it was created with, in the currency's smallest unit. It never
    /// changes.
    pub price: u64,
    /// The price of orders to come. `None`: it is still the first one.
    pub new_price: Option<u64>,
    /// ISO 4217, three capital letters.
    pub currency: String,
    /// Number of units that one buyer may hold; `None` is no limit.
    pub limit_per_buyer: Option<Quantity>,
    /// Number of segments that share the stock.
    pub segments: u16,
    /// The time in which it can be bought.
    pub window: Window,
    /// Seconds for which an unpaid order holds its units.
    pub hold_seconds: u32,
    /// Seconds up to which the hold of an order can be extended.
    pub max_hold_seconds: u32,
    /// Units that one order may ask for; `None` is no limit.
    pub max_per_order: Option<Quantity>,
    /// Units that are added at fixed times, earliest first. No two have the same time.
    pub waves: Vec<Wave>,
    /// The step after which an order is acknowledged.
    pub durability: Durability,
    /// Whether it sells.
    pub state: ItemState,
    /// Rises with every change of `state`. A segment refuses changes with an older epoch than its
    /// own.
    pub epoch: u64,
    /// Rises with every change of the item.
    pub version: u64,
}

impl Item {
    /// Maximum number of segments of an item.
    pub const MAX_SEGMENTS: u16 = 256;

    /// Maximum number of units of an item: sums stay exact in Lua's doubles.
    pub const MAX_STOCK: u64 = 1_000_000_000_000;

    /// Maximum number of waves of an item, added ones included.
    pub const MAX_WAVES: usize = 100;

    /// The price of one unit for orders to come.
    pub fn current_price(&self) -> u64 {
        self.new_price.unwrap_or(self.price)
    }

    /// The number of units that `segment` starts with.
    pub fn share(&self, segment: u16) -> u64 {
        self.share_of(self.stock, segment)
    }

    /// The part of these units that `segment` gets: an even share, and one more in the first
    /// segments until the remainder is used up.
    pub fn share_of(&self, units: u64, segment: u16) -> u64 {
        let segments = u64::from(self.segments);
        units / segments + u64::from(u64::from(segment) < units % segments)
    }

    /// Units that exist, and those of the waves that are to come.
    pub fn stock_with_waves(&self) -> u64 {
        let coming = self.waves.iter().filter(|wave| !wave.is_added);
        coming.fold(self.stock, |sum, wave| sum.saturating_add(wave.units))
    }

    /// Whether a change to `after` raises the item above [`Item::MAX_STOCK`]. One that has more
    /// already may get fewer.
    pub fn exceeds_stock(&self, after: &Self) -> bool {
        let units = after.stock_with_waves();
        units > Self::MAX_STOCK && units > self.stock_with_waves()
    }

    /// The first wave that has not been added.
    pub fn next_wave(&self) -> Option<&Wave> {
        self.waves.iter().find(|wave| !wave.is_added)
    }

    /// The item after this wave has been added, with its next version. `None`: it has been added
    /// before, or the item does not have it any more.
    pub fn with_wave_added(&self, wave: &Wave) -> Option<Self> {
        let place = self.waves.iter().position(|known| known == wave)?;
        let mut changed = self.clone();
        let known = changed
            .waves
            .get_mut(place)
            .filter(|known| !known.is_added)?;
        known.is_added = true;
        changed.stock = changed.stock.saturating_add(wave.units);
        changed.version += 1;
        Some(changed)
    }

    /// The waves after those that have not been added were replaced by `wanted`. A wave that has
    /// been added stays, whatever is wanted at its time.
    pub fn waves_replaced(&self, wanted: &[Wave]) -> Vec<Wave> {
        let added = self.waves.iter().filter(|wave| wave.is_added);
        let mut waves: Vec<_> = added.copied().collect();
        for wave in wanted {
            if waves.iter().all(|known| known.at != wave.at) {
                waves.push(*wave);
            }
        }
        waves.sort_unstable_by_key(|wave| wave.at);
        waves
    }
}

/// Units that are added to an item at a fixed time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wave {
    /// When they are added. It identifies the wave among those of the item.
    pub at: Timestamp,
    /// Number of units.
    pub units: u64,
    /// Whether they have been added.
    pub is_added: bool,
}

/// The settings that a segment should have, according to its item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentConfig {
    /// Whether it sells.
    pub state: ItemState,
    /// Number of units that one buyer may hold.
    pub limit_per_buyer: Option<Quantity>,
    /// The time in which it can be bought.
    pub window: Window,
    /// The price of one unit, if it is not the item's first one.
    pub price: Option<u64>,
    /// Rises with every change of these settings.
    pub epoch: u64,
}

impl From<&Item> for SegmentConfig {
    fn from(item: &Item) -> Self {
        Self {
            state: item.state,
            limit_per_buyer: item.limit_per_buyer,
            window: item.window,
            price: item.new_price,
            epoch: item.epoch,
        }
    }
}

/// The time in which an item can be bought. `None` is an open end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Window {
    /// The first moment inside the window.
    pub opens_at: Option<Timestamp>,
    /// The first moment after the window.
    pub closes_at: Option<Timestamp>,
}

macro_rules! named_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $($(#[$variant_doc])* $variant),+
        }

        impl $name {
            /// Every value, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word for this value in Lua, SQL, JSON, metrics and logs.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::Invalid;

            fn from_str(text: &str) -> Result<Self, $crate::Invalid> {
                Self::ALL.iter().copied().find(|value| value.as_str() == text).ok_or_else(|| {
                    let words: Vec<_> = Self::ALL.iter().map(|value| value.as_str()).collect();
                    $crate::Invalid::new(stringify!($name), format!("one of {}", words.join(", ")))
                })
            }
        }
    };
}
pub(crate) use named_enum;

named_enum! {
    /// Whether an item sells. Only `open` does, and only inside its window.
    ItemState {
        /// Sells inside its window.
        Open = "open",
        /// Sells nothing, but can be reopened.
        Paused = "paused",
        /// The sale has ended.
        Closed = "closed",
        /// The sale has ended, its books are closed, and Redis has forgotten it. For good: the
        /// ledger alone answers for it.
        Archived = "archived",
    }
}

named_enum! {
    /// The step after which an order is acknowledged; it determines which failures the order
    /// survives.
    Durability {
        /// The ledger has committed it: only the loss of the ledger loses it.
        Recorded = "recorded",
        /// The script has run: a crash or failover of Redis can lose it.
        Accepted = "accepted",
        /// The script has run and replicas have confirmed it: it survives a failover to one of
        /// these.
        Replicated = "replicated",
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{Durability, Item, ItemState, Wave, Window};
    use crate::ItemId;

    fn item(stock: u64, segments: u16) -> Item {
        Item {
            id: ItemId::new("vase").unwrap(),
            title: "Vase".into(),
            stock,
            price: 1,
            new_price: None,
            currency: "EUR".into(),
            limit_per_buyer: None,
            segments,
            window: Window::default(),
            hold_seconds: 60,
            max_hold_seconds: 60,
            max_per_order: None,
            waves: Vec::new(),
            durability: Durability::Recorded,
            state: ItemState::Open,
            epoch: 1,
            version: 1,
        }
    }

    #[test]
    fn shares_add_up_and_differ_by_one_at_most() {
        for (stock, segments) in [(0, 1), (1, 8), (7, 8), (8, 8), (9, 8), (1000, 7), (5, 256)] {
            let item = item(stock, segments);
            let shares: Vec<u64> = (0..segments).map(|segment| item.share(segment)).collect();
            assert_eq!(shares.iter().sum::<u64>(), stock);
            assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
        }
    }

    fn wave(second: i64, units: u64, is_added: bool) -> Wave {
        Wave {
            at: Timestamp::from_second(second).unwrap(),
            units,
            is_added,
        }
    }

    #[test]
    fn a_wave_is_added_once() {
        let before = Item {
            waves: vec![wave(1, 5, true), wave(2, 7, false)],
            ..item(10, 1)
        };
        assert_eq!(before.next_wave(), Some(&wave(2, 7, false)));
        let after = before.with_wave_added(&wave(2, 7, false)).unwrap();
        assert_eq!((after.stock, after.version), (17, before.version + 1));
        assert_eq!(after.next_wave(), None);
        for stale in [wave(2, 7, false), wave(2, 7, true), wave(1, 5, true)] {
            assert_eq!(after.with_wave_added(&stale), None);
        }
        assert_eq!(before.with_wave_added(&wave(2, 8, false)), None, "replaced");
    }

    #[test]
    fn the_maximum_of_the_stock_counts_the_waves_to_come() {
        let of = |stock, units, is_added| Item {
            waves: vec![wave(1, units, is_added)],
            ..item(stock, 1)
        };
        let before = of(5, 1, false);
        assert!(!before.exceeds_stock(&of(Item::MAX_STOCK - 7, 7, false)));
        assert!(before.exceeds_stock(&of(Item::MAX_STOCK - 7, 8, false)));
        assert!(!before.exceeds_stock(&of(Item::MAX_STOCK, 8, true)));
        let above = of(Item::MAX_STOCK, 8, false);
        assert!(!above.exceeds_stock(&of(Item::MAX_STOCK, 7, false)));
        assert!(above.exceeds_stock(&of(Item::MAX_STOCK, 9, false)));
    }

    #[test]
    fn replaced_waves_leave_those_that_were_added() {
        let before = Item {
            waves: vec![wave(1, 5, true), wave(2, 7, false)],
            ..item(10, 1)
        };
        let wanted = [wave(4, 1, false), wave(3, 2, false), wave(1, 9, false)];
        let waves = before.waves_replaced(&wanted);
        assert_eq!(
            waves,
            [wave(1, 5, true), wave(3, 2, false), wave(4, 1, false)]
        );
        assert_eq!(before.waves_replaced(&[]), [wave(1, 5, true)]);
    }

    #[test]
    fn every_word_parses_to_its_value() {
        for state in ItemState::ALL {
            assert_eq!(state.as_str().parse::<ItemState>().unwrap(), *state);
        }
        let error = "soon".parse::<Durability>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "Durability: expected one of recorded, accepted, replicated"
        );
    }
}

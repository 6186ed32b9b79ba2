//! What is sold.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{ItemId, Quantity};

/// Something that is sold in a limited number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its name.
    pub id: ItemId,
    /// What buyers read.
    pub title: String,
    /// Units that exist.
    pub stock: u64,
    /// The price of one unit, in the currency's smallest unit.
    pub price_cents: u64,
    /// ISO 4217, three capital letters.
    pub currency: String,
    /// Units that one buyer may hold; `None` is no limit.
    pub limit_per_buyer: Option<Quantity>,
    /// Number of stock counters.
    pub segments: u16,
    /// When it can be bought.
    pub window: Window,
    /// Seconds for which an order holds its units before they go back.
    pub hold_seconds: u32,
    /// When an order is acknowledged.
    pub durability: Durability,
    /// Whether it sells.
    pub state: ItemState,
    /// Rises with every change of `state`; a segment refuses what is older than what it has seen.
    pub epoch: u64,
    /// Rises with every change of the item.
    pub version: u64,
}

impl Item {
    /// The most segments an item can have.
    pub const MAX_SEGMENTS: u16 = 256;

    /// The most units an item can have: sums stay exact in Lua's doubles.
    pub const MAX_STOCK: u64 = 1_000_000_000_000;

    /// How many of the item's units segment `segment` starts with: an even share, the first ones taking the rest.
    pub fn share(&self, segment: u16) -> u64 {
        let segments = u64::from(self.segments);
        self.stock / segments + u64::from(u64::from(segment) < self.stock % segments)
    }
}

/// What a segment should be like, as its item has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentConfig {
    /// Whether it sells.
    pub state: ItemState,
    /// Units that one buyer may hold.
    pub limit_per_buyer: Option<Quantity>,
    /// From when until when it can be bought.
    pub window: Window,
    /// Rises with every change of these.
    pub epoch: u64,
}

impl From<&Item> for SegmentConfig {
    fn from(item: &Item) -> Self {
        Self {
            state: item.state,
            limit_per_buyer: item.limit_per_buyer,
            window: item.window,
            epoch: item.epoch,
        }
    }
}

/// From when until when an item can be bought. An open end is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Window {
    /// The first moment.
    pub opens_at: Option<Timestamp>,
    /// The first moment after.
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

            /// The word that stands for it in Lua, SQL, JSON, metrics and logs.
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
        /// Sells nothing for now.
        Paused = "paused",
        /// The sale is over.
        Closed = "closed",
    }
}

named_enum! {
    /// When an order is acknowledged, and so which failures it survives.
    Durability {
        /// The ledger has committed it: only the loss of the ledger loses it.
        Recorded = "recorded",
        /// The script has run: a crash or failover of Redis can lose it.
        Accepted = "accepted",
        /// The script has run and replicas have confirmed it: it survives a failover to one that did.
        Replicated = "replicated",
    }
}

#[cfg(test)]
mod tests {
    use super::{Durability, Item, ItemState, Window};
    use crate::ItemId;

    fn item(stock: u64, segments: u16) -> Item {
        Item {
            id: ItemId::new("vase").unwrap(),
            title: "Vase".into(),
            stock,
            price_cents: 1,
            currency: "EUR".into(),
            limit_per_buyer: None,
            segments,
            window: Window::default(),
            hold_seconds: 60,
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

    #[test]
    fn words_read_back() {
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

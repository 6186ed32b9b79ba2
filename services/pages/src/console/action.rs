//! What the buttons of an item do.

use order::Scope;

/// What a button does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Open,
    Pause,
    Close,
    Archive,
    Extend,
    Add,
    Withdraw,
}

/// The most by which the end of a sale is moved at once: 90 days.
pub(super) const MINUTES_MAX: u64 = 90 * 24 * 60;

impl Action {
    pub(super) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "open" => Self::Open,
            "pause" => Self::Pause,
            "close" => Self::Close,
            "archive" => Self::Archive,
            "extend" => Self::Extend,
            "add" => Self::Add,
            "withdraw" => Self::Withdraw,
            _ => return None,
        })
    }

    /// The scope that the same call of the API needs.
    pub(super) fn scope(self) -> Scope {
        if self.moves_units() {
            Scope::StockWrite
        } else {
            Scope::ItemsWrite
        }
    }

    pub(super) fn moves_units(self) -> bool {
        matches!(self, Self::Add | Self::Withdraw)
    }

    /// The unit of the amount that the action needs.
    pub(super) fn amount(self) -> Option<&'static str> {
        match self {
            Self::Add | Self::Withdraw => Some("units"),
            Self::Extend => Some("minutes"),
            _ => None,
        }
    }

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Open => "Open",
            Self::Pause => "Pause",
            Self::Close => "Close",
            Self::Archive => "Archive",
            Self::Extend => "Extend the sale",
            Self::Add => "Add units",
            Self::Withdraw => "Withdraw units",
        }
    }

    pub(super) fn consequence(self) -> &'static str {
        match self {
            Self::Open => "Buyers can order again, inside the item's window.",
            Self::Pause => "No new orders are accepted. Orders that are held can still be paid.",
            Self::Close => "The sale ends. Orders that are held can still be paid.",
            Self::Extend => {
                "The end of the sale moves by so many minutes; if it has passed, it is counted from now. An item that is closed must be opened as well."
            }
            Self::Archive => {
                "The final audit is written down, and Redis forgets the item. It can never be opened again."
            }
            Self::Add => "The units go on sale immediately.",
            Self::Withdraw => {
                "Unsold units leave the sale: as many as this, or as many as there are."
            }
        }
    }
}

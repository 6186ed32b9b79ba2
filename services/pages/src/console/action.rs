//! What the buttons of an item do.

use order::Scope;

/// What a button does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Open,
    Pause,
    Close,
    Archive,
    Add,
    Withdraw,
}

impl Action {
    pub(super) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "open" => Self::Open,
            "pause" => Self::Pause,
            "close" => Self::Close,
            "archive" => Self::Archive,
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

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Open => "Open",
            Self::Pause => "Pause",
            Self::Close => "Close",
            Self::Archive => "Archive",
            Self::Add => "Add units",
            Self::Withdraw => "Withdraw units",
        }
    }

    pub(super) fn consequence(self) -> &'static str {
        match self {
            Self::Open => "Buyers can order again, inside the item's window.",
            Self::Pause => "No new orders are accepted. Orders that are held can still be paid.",
            Self::Close => "The sale ends. Orders that are held can still be paid.",
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

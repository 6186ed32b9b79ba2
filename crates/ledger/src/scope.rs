//! Which items a search is about.

use domain::ItemId;

/// The items of which a search finds something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemScope<'a> {
    /// This item.
    Only(&'a ItemId),
    /// All items but these. A search from the front of a list finds what is behind the things of an
    /// item that cannot be done now.
    Except(&'a [ItemId]),
}

impl ItemScope<'static> {
    /// Every item.
    pub const ALL: Self = Self::Except(&[]);
}

//! Changes of a hold.

use crate::HoldChange;

impl HoldChange {
    /// The hold lasts so many seconds from the creation of the order, or of the cart's first one.
    pub fn seconds(seconds: u32) -> Self {
        Self {
            seconds: Some(seconds),
            session: None,
        }
    }

    /// The buyer pays in this checkout session of the provider from now on.
    pub fn session(session: impl Into<String>) -> Self {
        Self::default().in_session(session)
    }

    /// The same change, and the checkout session in which the buyer pays from now on.
    #[must_use]
    pub fn in_session(self, session: impl Into<String>) -> Self {
        Self {
            session: Some(session.into()),
            ..self
        }
    }
}

impl From<u32> for HoldChange {
    fn from(seconds: u32) -> Self {
        Self::seconds(seconds)
    }
}

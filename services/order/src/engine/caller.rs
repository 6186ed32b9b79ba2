//! Who ends or extends an order.

use std::sync::Arc;

use domain::BuyerId;

/// Who ends or extends an order or a cart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// The buyer, who may do so with own ones.
    Buyer(BuyerId),
    /// An admin, whom the journal names.
    Admin(Arc<str>),
    /// The provider of payments, by its report.
    Provider,
}

impl Caller {
    /// The buyer, if it is one.
    pub fn buyer(&self) -> Option<&BuyerId> {
        match self {
            Self::Buyer(buyer) => Some(buyer),
            Self::Admin(_) | Self::Provider => None,
        }
    }

    /// The admin, if it is one.
    pub fn admin(&self) -> Option<&Arc<str>> {
        match self {
            Self::Admin(name) => Some(name),
            Self::Buyer(_) | Self::Provider => None,
        }
    }

    /// Whether it may change what belongs to this buyer.
    pub fn may_change(&self, owner: &BuyerId) -> bool {
        self.buyer().is_none_or(|buyer| buyer == owner)
    }
}

#[cfg(test)]
mod tests {
    use domain::BuyerId;

    use super::Caller;

    #[test]
    fn a_buyer_may_change_own_orders_alone() {
        let [ann, bob] = ["ann", "bob"].map(|name| BuyerId::new(name).unwrap());
        let buyer = Caller::Buyer(ann.clone());
        assert!(buyer.may_change(&ann) && !buyer.may_change(&bob));
        for caller in [Caller::Admin("eve".into()), Caller::Provider] {
            assert!(caller.may_change(&ann) && caller.may_change(&bob));
        }
    }
}

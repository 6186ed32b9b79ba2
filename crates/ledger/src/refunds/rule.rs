//! The one rule of a payment: it is unbound, bound or spent, and each act moves it at most once.
//!
//! | | unbound | bound to this | bound to another | spent |
//! |---|---|---|---|---|
//! | reported, and the order or cart can take it | bound | stays | refused | refused |
//! | returned at the provider, or with what it has paid | spent | spent | spent | stays |
//! | noted as returned: a row of the list (`done`) | spent | spent, or refused if it has paid this | spent, or refused if it has paid the other | refused |
//!
//! A payment that has paid something is no row of the list, whatever it was reported for besides:
//! its money is returned with what it has paid.
//!
//! Every transaction that acts on a payment holds the lock of its row while it decides, so acts
//! have an order, and the later one sees what the earlier one has left. A spent payment is never
//! bound again: money that was returned confirms nothing. `lab/models` checks the rule in every
//! order of acts.

use uuid::Uuid;

/// What became of a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Money {
    /// Nothing has it.
    Unbound,
    /// It is this order's or cart's.
    Bound {
        /// The order or the cart.
        payer: Uuid,
        /// Whether it has paid it. If not, a step has lost a race after it bound the payment.
        has_paid: bool,
    },
    /// Its money was returned.
    Spent,
}

/// What is to be done with a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// It was reported, and this order or cart can take it.
    Pay(Uuid),
    /// The provider has returned it, or an admin has returned the money of what it has paid.
    Return,
    /// An admin notes a row of the list as returned.
    Done,
}

/// What the rule says to an act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ruling {
    /// The payment becomes that of the order or cart.
    Bind,
    /// The payment becomes spent.
    Spend,
    /// The payment stays as it is: it has taken the act before.
    Stay,
    /// The act changes nothing.
    Refuse,
}

impl Money {
    /// A payment as its row has it. `has_paid`: whether what it is bound to was paid by it.
    pub(crate) fn of(payer: Option<Uuid>, is_returned: bool, has_paid: bool) -> Self {
        match payer {
            _ if is_returned => Self::Spent,
            Some(payer) => Self::Bound { payer, has_paid },
            None => Self::Unbound,
        }
    }

    /// The rule.
    pub(crate) fn after(self, act: Act) -> Ruling {
        match (self, act) {
            (Self::Unbound, Act::Pay(_)) => Ruling::Bind,
            (Self::Bound { payer, .. }, Act::Pay(wanted)) if payer == wanted => Ruling::Stay,
            (Self::Bound { .. } | Self::Spent, Act::Pay(_)) => Ruling::Refuse,
            (Self::Unbound | Self::Bound { .. }, Act::Return) => Ruling::Spend,
            (Self::Spent, Act::Return) => Ruling::Stay,
            (Self::Bound { has_paid: true, .. } | Self::Spent, Act::Done) => Ruling::Refuse,
            (Self::Unbound | Self::Bound { .. }, Act::Done) => Ruling::Spend,
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{
        Act, Money,
        Ruling::{self, *},
    };

    #[test]
    fn each_act_on_each_payment_has_one_ruling() {
        let [order, cart, other] = [1, 2, 3].map(Uuid::from_u128);
        let bound = |payer, has_paid| Money::of(Some(payer), false, has_paid);
        let table: [(Money, [Ruling; 3]); 8] = [
            (Money::of(None, false, false), [Bind, Spend, Spend]),
            (bound(order, false), [Stay, Spend, Spend]),
            (bound(order, true), [Stay, Spend, Refuse]),
            (bound(cart, true), [Refuse, Spend, Refuse]),
            (bound(other, false), [Refuse, Spend, Spend]),
            (bound(other, true), [Refuse, Spend, Refuse]),
            (Money::of(Some(order), true, true), [Refuse, Stay, Refuse]),
            (Money::of(None, true, false), [Refuse, Stay, Refuse]),
        ];
        for (money, rulings) in table {
            let acts = [Act::Pay(order), Act::Return, Act::Done];
            assert_eq!(acts.map(|act| money.after(act)), rulings, "{money:?}");
        }
    }
}

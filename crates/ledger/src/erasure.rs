//! Erasing the name of a buyer, for every database.
//!
//! A random name replaces the name at archived items. It is made for one erasure and follows from
//! nothing, so no list of candidate names leads back from it. At other items the name has to stay:
//! it selects the home segment of its orders, which counts them and must remember them after a
//! repair. A cart that has failed has no units anywhere, and loses the name once none of its lines
//! can be recorded any more.
//!
//! The ids of the orders and carts still follow from the name, without a key ([`domain::OrderId`],
//! [`domain::CartId`]). A list of candidate names finds the right one by them, until a drop deletes
//! the rows. Those beside payments and refunds stay.

use std::collections::BTreeMap;

use async_trait::async_trait;
use domain::{BuyerId, ItemId};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::json;

use crate::{
    LedgerError, NewAct, NewJournalEntry,
    changes::item,
    transaction::{Outcome, end_as},
};

/// Random bytes of the name that stands in place of the buyer's.
const NAME_LENGTH: usize = 16;

/// Result of an erasure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Erased {
    /// The name is erased from the orders at archived items.
    Done {
        /// Orders that this call has erased the name from.
        orders: u64,
        /// Orders that keep the name until their items are archived, and failed carts that keep it
        /// because a line may still be recorded.
        kept: u64,
    },
    /// The buyer has held orders. Nothing was changed.
    Held {
        /// Number of held orders.
        orders: u64,
    },
}

/// SQL statements of a transaction that erases a buyer, besides the journal's.
#[async_trait]
pub(crate) trait Statements: item::Statements {
    /// Number of the buyer's held orders and of the buyer's carts that are being placed, and of all
    /// orders at items that are not archived and failed carts that may still get a line there.
    async fn orders_of(&mut self, buyer: &BuyerId) -> Result<(u64, u64), LedgerError>;

    /// Deletes the key with which earlier releases made the names of erased buyers. Without it
    /// these names follow from nothing, too.
    async fn forget_erasure_key(&mut self) -> Result<(), LedgerError>;

    /// Replaces the name in the orders at archived items, and in the carts that have failed and are
    /// settled, or all of whose items are archived.
    /// Returns the item of each order.
    async fn replace_buyer(
        &mut self,
        buyer: &BuyerId,
        name: &str,
    ) -> Result<Vec<ItemId>, LedgerError>;
}

/// Erases the buyer's name in the transaction.
pub(crate) async fn erase(
    mut transaction: impl Statements,
    buyer: &BuyerId,
    actor: &str,
) -> Result<Erased, LedgerError> {
    let erased = apply(&mut transaction, buyer, actor).await;
    end_as(transaction, erased).await
}

async fn apply(
    transaction: &mut impl Statements,
    buyer: &BuyerId,
    actor: &str,
) -> Result<Outcome<Erased>, LedgerError> {
    let (held, kept) = transaction.orders_of(buyer).await?;
    if held > 0 {
        return Ok(Outcome::Unchanged(Erased::Held { orders: held }));
    }
    transaction.forget_erasure_key().await?;
    let items = transaction.replace_buyer(buyer, &random_name()?).await?;
    let mut by_item: BTreeMap<&ItemId, u64> = BTreeMap::new();
    for item in &items {
        *by_item.entry(item).or_default() += 1;
    }
    for (item, orders) in by_item {
        transaction.note(&entry(item, orders, actor)).await?;
    }
    let orders = items.len() as u64;
    transaction.note_act(&act(orders, kept, actor)).await?;
    Ok(Outcome::Done(Erased::Done { orders, kept }))
}

/// What replaces the name.
fn random_name() -> Result<String, LedgerError> {
    let mut random = [0; NAME_LENGTH];
    SystemRandom::new()
        .fill(&mut random)
        .map_err(|_| LedgerError::Random)?;
    let hex = random.iter().map(|byte| format!("{byte:02x}"));
    Ok(format!("erased-{}", hex.collect::<String>()))
}

/// The journal gets the number of orders, and no name.
fn entry(item: &ItemId, orders: u64, actor: &str) -> NewJournalEntry {
    NewJournalEntry {
        item: item.clone(),
        actor: actor.into(),
        action: "erase_buyer".into(),
        token: None,
        before: json!({}),
        after: json!({ "orders": orders }),
    }
}

/// The service journal gets every erasure, also one that has found no order.
fn act(orders: u64, kept: u64, actor: &str) -> NewAct {
    NewAct {
        actor: actor.into(),
        action: "erase_buyer".into(),
        subject: None,
        before: json!({}),
        after: json!({ "orders": orders, "kept": kept }),
    }
}

#[cfg(test)]
mod tests {
    use domain::BuyerId;

    use super::random_name;

    #[test]
    fn each_erasure_has_its_own_name_which_a_buyer_can_have() {
        let [first, second] = [random_name(), random_name()].map(Result::unwrap);
        assert_ne!(first, second);
        assert_eq!(first.len(), "erased-".len() + 32);
        BuyerId::new(first).unwrap();
    }
}

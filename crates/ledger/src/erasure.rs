//! Erasing the name of a buyer, for every database.
//!
//! A keyed hash replaces the name at archived items. At other items the name has to stay: it selects
//! the home segment of its orders, which counts them and must remember them after a repair. A cart that
//! has failed has no units anywhere, and loses the name once none of its lines can be recorded any
//! more.

use std::collections::BTreeMap;

use async_trait::async_trait;
use domain::{BuyerId, ItemId};
use ring::{
    hmac,
    rand::{SecureRandom, SystemRandom},
};
use serde_json::json;

use crate::{
    LedgerError, NewJournalEntry,
    changes::item,
    transaction::{Outcome, end_as},
};

/// Length of the key, in bytes.
pub(crate) const KEY_LENGTH: usize = 32;

/// Bytes of the hash that stand in place of the name.
const HASH_LENGTH: usize = 16;

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
    /// Number of the buyer's held orders and of the buyer's carts that are being placed, and of all orders at items that are not archived and
    /// failed carts that may still get a line there.
    async fn orders_of(&mut self, buyer: &BuyerId) -> Result<(u64, u64), LedgerError>;

    /// Stores the key if there is none, and returns the one that is stored.
    async fn erasure_key(&mut self, new: &[u8]) -> Result<Vec<u8>, LedgerError>;

    /// Replaces the name in the orders at archived items, and in the carts that have failed and are
    /// settled, or all of whose items are archived.
    /// Returns the item of each order.
    async fn replace_buyer(
        &mut self,
        buyer: &BuyerId,
        hash: &str,
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
    let key = transaction.erasure_key(&new_key()?).await?;
    let items = transaction.replace_buyer(buyer, &hash(&key, buyer)).await?;
    let mut by_item: BTreeMap<&ItemId, u64> = BTreeMap::new();
    for item in &items {
        *by_item.entry(item).or_default() += 1;
    }
    for (item, orders) in by_item {
        transaction.note(&entry(item, orders, actor)).await?;
    }
    let orders = items.len() as u64;
    Ok(Outcome::Done(Erased::Done { orders, kept }))
}

fn new_key() -> Result<[u8; KEY_LENGTH], LedgerError> {
    let mut key = [0; KEY_LENGTH];
    SystemRandom::new()
        .fill(&mut key)
        .map_err(|_| LedgerError::Random)?;
    Ok(key)
}

/// What replaces the name.
fn hash(key: &[u8], buyer: &BuyerId) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let tag = hmac::sign(&key, buyer.as_str().as_bytes());
    let hex = tag.as_ref()[..HASH_LENGTH]
        .iter()
        .map(|byte| format!("{byte:02x}"));
    format!("erased-{}", hex.collect::<String>())
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

#[cfg(test)]
mod tests {
    use domain::BuyerId;

    use super::{KEY_LENGTH, hash};

    #[test]
    fn the_hash_depends_on_the_buyer_and_the_key_and_is_a_buyers_name() {
        let of = |key: u8, buyer: &str| hash(&[key; KEY_LENGTH], &BuyerId::new(buyer).unwrap());
        assert_eq!(of(1, "ann"), of(1, "ann"));
        assert_ne!(of(1, "ann"), of(1, "bob"));
        assert_ne!(of(1, "ann"), of(2, "ann"));
        assert_eq!(of(1, "ann").len(), "erased-".len() + 32);
        BuyerId::new(of(1, "ann")).unwrap();
    }
}

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

use std::{collections::BTreeMap, time::Instant};

use async_trait::async_trait;
use domain::{BuyerId, ItemId};
use futures::future::BoxFuture;
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::json;
use tokio::time::sleep;
use uuid::Uuid;

use crate::{LedgerError, NewAct, NewJournalEntry, changes::item, transaction::end};

/// Orders of one transaction. Those of a buyer may be very many, and orders of others wait behind
/// each transaction.
pub(crate) const PAGE: usize = 500;

/// After a transaction the ledger belongs to others for so many times as long as it took.
const PAUSE_FACTOR: u32 = 2;

/// Random bytes of the name that stands in place of the buyer's.
const NAME_LENGTH: usize = 16;

/// What a page of an erasure has replaced.
pub(crate) struct Replaced {
    /// The item of each order that had the name.
    pub items: Vec<ItemId>,
    /// The last row of the page, if there may be another page.
    pub last: Option<Uuid>,
}

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

/// What a buyer has before an erasure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    /// Held orders, and carts that are being placed.
    pub held: u64,
    /// Orders at items that are not archived, and failed carts that may still get a line there.
    pub kept: u64,
}

/// SQL statements of the transactions that erase a buyer, besides the journal's.
#[async_trait]
pub(crate) trait Statements: item::Statements {
    /// Deletes the key with which earlier releases made the names of erased buyers. Without it
    /// these names follow from nothing, too.
    async fn forget_erasure_key(&mut self) -> Result<(), LedgerError>;

    /// Of the buyer's next orders after this one, up to [`PAGE`], replaces the name in those at
    /// archived items.
    async fn replace_buyer_of_page(
        &mut self,
        buyer: &BuyerId,
        name: &str,
        after: Uuid,
    ) -> Result<Replaced, LedgerError>;

    /// Of the buyer's next carts after this one, up to [`PAGE`], replaces the name in those that have
    /// failed and are settled, or all of whose items are archived. Returns the last cart, if there may
    /// be another page.
    async fn replace_buyer_of_carts(
        &mut self,
        buyer: &BuyerId,
        name: &str,
        after: Uuid,
    ) -> Result<Option<Uuid>, LedgerError>;
}

/// Begins a transaction.
type Begin<'a, T> = &'a (dyn Fn() -> BoxFuture<'a, Result<T, LedgerError>> + Sync);

/// Erases the buyer's name, page by page. What a page has erased stays so if a later one fails: a
/// repeat does the rest.
pub(crate) async fn erase<T: Statements>(
    begin: Begin<'_, T>,
    Found { held, kept }: Found,
    buyer: &BuyerId,
    actor: &str,
) -> Result<Erased, LedgerError> {
    if held > 0 {
        return Ok(Erased::Held { orders: held });
    }
    let erasure = Erasure {
        buyer,
        name: random_name()?,
        kept,
        actor,
    };
    let mut orders = 0;
    let mut next = Some((Table::Carts, Uuid::nil()));
    while let Some((table, after)) = next {
        let mut transaction = begin().await?;
        let began = Instant::now();
        let erased = match table {
            Table::Carts => erasure.erase_carts(&mut transaction, after).await,
            Table::Orders => erasure.erase_orders(&mut transaction, after).await,
        };
        let page = end(transaction, erased).await?;
        orders += page.items.len() as u64;
        next = match (page.last, table) {
            (Some(last), _) => Some((table, last)),
            (None, Table::Carts) => Some((Table::Orders, Uuid::nil())),
            (None, Table::Orders) => None,
        };
        if next.is_some() {
            sleep(began.elapsed() * PAUSE_FACTOR).await;
        }
    }
    Ok(Erased::Done { orders, kept })
}

/// Tables with a buyer's rows, in the order of the erasure.
#[derive(Clone, Copy)]
enum Table {
    Carts,
    Orders,
}

struct Erasure<'a> {
    buyer: &'a BuyerId,
    /// What replaces the name.
    name: String,
    kept: u64,
    actor: &'a str,
}

impl Erasure<'_> {
    /// Erases the name from the next carts after this one.
    async fn erase_carts(
        &self,
        transaction: &mut impl Statements,
        after: Uuid,
    ) -> Result<Replaced, LedgerError> {
        if after.is_nil() {
            transaction.forget_erasure_key().await?;
        }
        let last = transaction.replace_buyer_of_carts(self.buyer, &self.name, after);
        Ok(Replaced {
            items: Vec::new(),
            last: last.await?,
        })
    }

    /// Erases the name from the next orders after this one. The journals get what was erased with it.
    async fn erase_orders(
        &self,
        transaction: &mut impl Statements,
        after: Uuid,
    ) -> Result<Replaced, LedgerError> {
        let page = transaction.replace_buyer_of_page(self.buyer, &self.name, after);
        let page = page.await?;
        let mut by_item: BTreeMap<&ItemId, u64> = BTreeMap::new();
        for item in &page.items {
            *by_item.entry(item).or_default() += 1;
        }
        for (item, orders) in by_item {
            transaction.note(&entry(item, orders, self.actor)).await?;
        }
        if page.last.is_none() || !page.items.is_empty() {
            let orders = page.items.len() as u64;
            let act = act(orders, self.kept, self.actor);
            transaction.note_act(&act).await?;
        }
        Ok(page)
    }
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

/// The service journal gets each page of an erasure that has erased something, and the last one.
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

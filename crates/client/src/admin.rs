//! The calls of an admin.

use uuid::Uuid;

use crate::{
    Audit, Client, Error, Item, ItemPatch, ItemState, JournalEntry, NewItem, Order, Request,
    Response, StockChange, StockChanged, Token,
};

/// Makes calls as an admin.
///
/// Changes that name a version succeed only if the item still has it; [`Item::version`] is the one
/// to name. `None` changes the item in any case.
#[derive(Clone, Debug)]
pub struct Admin {
    client: Client,
    token: Token,
}

impl Admin {
    pub(crate) fn new(client: Client, token: Token) -> Self {
        Self { client, token }
    }

    /// Creates an item. A repeat with the same values returns the item as it is now.
    pub async fn create_item(&self, item: &NewItem) -> Result<Item, Error> {
        let response = self.send(&Request::create_item(&self.token, item)).await?;
        Item::read(&response)
    }

    /// Shows an item, with its segments and its version.
    pub async fn item(&self, item: &str) -> Result<Item, Error> {
        let request = Request::item(item, Some(&self.token));
        Item::read(&self.send(&request).await?)
    }

    /// Changes the limit or the times of an item.
    pub async fn patch_item(
        &self,
        item: &str,
        patch: &ItemPatch,
        version: Option<u64>,
    ) -> Result<Item, Error> {
        let request = Request::patch_item(&self.token, item, patch, version);
        Item::read(&self.send(&request).await?)
    }

    /// Opens, pauses or closes an item.
    pub async fn set_state(
        &self,
        item: &str,
        state: ItemState,
        version: Option<u64>,
    ) -> Result<Item, Error> {
        let request = Request::set_state(&self.token, item, state, version);
        Item::read(&self.send(&request).await?)
    }

    /// Archives a closed item for good. If a reconciler has not done it yet, the item that is
    /// returned is still closed.
    pub async fn archive_item(&self, item: &str, version: Option<u64>) -> Result<Item, Error> {
        let request = Request::archive_item(&self.token, item, version);
        Item::read(&self.send(&request).await?)
    }

    /// Adds or withdraws units.
    pub async fn change_stock(
        &self,
        item: &str,
        change: &StockChange,
    ) -> Result<StockChanged, Error> {
        let request = Request::change_stock(&self.token, item, change);
        StockChanged::read(&self.send(&request).await?)
    }

    /// Sets the stock of an item, those units included that are held or paid.
    pub async fn set_stock(
        &self,
        item: &str,
        stock: u64,
        version: u64,
    ) -> Result<StockChanged, Error> {
        let request = Request::set_stock(&self.token, item, stock, version);
        StockChanged::read(&self.send(&request).await?)
    }

    /// Compares the stock counters of an item with the ledger.
    pub async fn audit(&self, item: &str) -> Result<Audit, Error> {
        self.send(&Request::audit(&self.token, item)).await?.json()
    }

    /// The latest 1000 changes of an item, the latest first.
    pub async fn journal(&self, item: &str) -> Result<Vec<JournalEntry>, Error> {
        self.send(&Request::journal(&self.token, item))
            .await?
            .json()
    }

    /// Reads any buyer's order from the ledger.
    pub async fn order(&self, id: Uuid) -> Result<Order, Error> {
        Order::read(&self.send(&Request::order(&self.token, id)).await?, id)
    }

    /// Cancels any buyer's held order.
    pub async fn cancel(&self, id: Uuid) -> Result<Order, Error> {
        Order::read(&self.send(&Request::cancel(&self.token, id)).await?, id)
    }

    /// Notes that the money of an order was returned. Units that it still has can be bought again.
    pub async fn refund(&self, id: Uuid) -> Result<Order, Error> {
        Order::read(&self.send(&Request::refund(&self.token, id)).await?, id)
    }

    async fn send(&self, request: &Request) -> Result<Response, Error> {
        self.client.send(request).await.result
    }
}

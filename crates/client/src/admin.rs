//! The calls of an admin.

use futures::Stream;
use uuid::Uuid;

use crate::{
    Audit, BuyerOrder, Cart, Client, Error, HoldChange, Item, ItemPatch, ItemState, JournalEntry,
    ListedItem, ListedOrder, NewCart, NewItem, Order, OrderState, Page, PageRequest, Placed,
    PlacedCart, RefundDue, Request, Response, RetryPolicy, ServiceJournalEntry, StockChange,
    StockChanged, Token, attempts::Attempts, batch, list,
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
        let request = Request::create_item(&self.token, item);
        self.call(&request, Item::read).await
    }

    /// Shows an item, with its segments and its version.
    pub async fn item(&self, item: &str) -> Result<Item, Error> {
        let request = Request::item(item, Some(&self.token));
        self.call(&request, Item::read).await
    }

    /// Changes the limit or the times of an item.
    pub async fn patch_item(
        &self,
        item: &str,
        patch: &ItemPatch,
        version: Option<u64>,
    ) -> Result<Item, Error> {
        let request = Request::patch_item(&self.token, item, patch, version);
        self.call(&request, Item::read).await
    }

    /// Opens, pauses or closes an item.
    pub async fn set_state(
        &self,
        item: &str,
        state: ItemState,
        version: Option<u64>,
    ) -> Result<Item, Error> {
        let request = Request::set_state(&self.token, item, state, version);
        self.call(&request, Item::read).await
    }

    /// Archives a closed item for good. If a reconciler has not done it yet, the item that is
    /// returned is still closed.
    pub async fn archive_item(&self, item: &str, version: Option<u64>) -> Result<Item, Error> {
        let request = Request::archive_item(&self.token, item, version);
        self.call(&request, Item::read).await
    }

    /// Adds or withdraws units.
    pub async fn change_stock(
        &self,
        item: &str,
        change: &StockChange,
    ) -> Result<StockChanged, Error> {
        let request = Request::change_stock(&self.token, item, change);
        self.call(&request, StockChanged::read).await
    }

    /// Sets the stock of an item, those units included that are held or paid.
    pub async fn set_stock(
        &self,
        item: &str,
        stock: u64,
        version: u64,
    ) -> Result<StockChanged, Error> {
        let request = Request::set_stock(&self.token, item, stock, version);
        self.call(&request, StockChanged::read).await
    }

    /// Compares the stock counters of an item with the ledger, at once. [`Audit::orders_checked`]
    /// says when the ledger's counters were last compared with the orders themselves.
    pub async fn audit(&self, item: &str) -> Result<Audit, Error> {
        self.call(&Request::audit(&self.token, item), Response::json)
            .await
    }

    /// [`Admin::audit`] that also reads every order of the item. Of millions of orders it takes
    /// seconds, so the client may need a longer time-out.
    pub async fn full_audit(&self, item: &str) -> Result<Audit, Error> {
        self.call(&Request::full_audit(&self.token, item), Response::json)
            .await
    }

    /// A page of the changes of an item, the latest first.
    pub async fn journal(
        &self,
        item: &str,
        page: &PageRequest,
    ) -> Result<Page<JournalEntry>, Error> {
        self.call(&Request::journal(&self.token, item, page), Response::json)
            .await
    }

    /// A page of what admins have done that belongs to no item, the latest first.
    pub async fn service_journal(
        &self,
        page: &PageRequest,
    ) -> Result<Page<ServiceJournalEntry>, Error> {
        self.call(&Request::service_journal(&self.token, page), Response::json)
            .await
    }

    /// Has the hold of any buyer's order last so many seconds from its creation, or longer if it
    /// does already; or names the checkout session in which the buyer pays. See [`HoldChange`].
    pub async fn extend_hold(&self, id: Uuid, hold: impl Into<HoldChange>) -> Result<Order, Error> {
        let request = Request::extend_hold(&self.token, id, &hold.into());
        self.call(&request, |response| Order::read(response, id))
            .await
    }

    /// Notes that the money of a row of [`Admin::refunds_due`] was returned.
    pub async fn refund_done(&self, id: &str) -> Result<RefundDue, Error> {
        self.call(&Request::refund_done(&self.token, id), Response::json)
            .await
    }

    /// Reads any buyer's order from the ledger.
    pub async fn order(&self, id: Uuid) -> Result<Order, Error> {
        self.call(&Request::order(&self.token, id), |response| {
            Order::read(response, id)
        })
        .await
    }

    /// Cancels any buyer's held order.
    pub async fn cancel(&self, id: Uuid) -> Result<Order, Error> {
        self.call(&Request::cancel(&self.token, id), |response| {
            Order::read(response, id)
        })
        .await
    }

    /// Notes that the money of an order was returned. Units that it still has can be bought again.
    pub async fn refund(&self, id: Uuid) -> Result<Order, Error> {
        self.call(&Request::refund(&self.token, id), |response| {
            Order::read(response, id)
        })
        .await
    }

    /// Places a cart for a buyer, whose own request with the same key is a repeat of it. Otherwise
    /// as [`Buyer::place_cart`](crate::Buyer::place_cart), and it may cost less than its lines.
    pub async fn place_cart(&self, buyer: &str, cart: &NewCart) -> Result<PlacedCart, Error> {
        let request = Request::place_cart_for(&self.token, buyer, cart);
        let read = |response: &Response| cart.read(response).and_then(PlacedCart::with_units);
        self.call(&request, read).await
    }

    /// Reads any buyer's cart.
    pub async fn cart(&self, id: Uuid) -> Result<Cart, Error> {
        self.call(&Request::cart(&self.token, id), |response| {
            Cart::read(response, id)
        })
        .await
    }

    /// Notes that the money of a cart was returned. Its units can be bought again.
    pub async fn refund_cart(&self, id: Uuid) -> Result<Cart, Error> {
        self.call(&Request::refund_cart(&self.token, id), |response| {
            Cart::read(response, id)
        })
        .await
    }

    /// Notes that the money of one line of a confirmed cart was returned. Its units can be bought
    /// again. Returns the line's order; its `amount` is its share of what the cart costs.
    pub async fn refund_cart_line(&self, cart: Uuid, order: Uuid) -> Result<Order, Error> {
        let request = Request::refund_cart_line(&self.token, cart, order);
        self.call(&request, |response| Order::read(response, order))
            .await
    }

    /// Places orders of several buyers, at most 512, and returns a result for each, in this order.
    ///
    /// The whole request is repeated while its outcome is unknown, but not single orders whose
    /// outcome is: [`OrderBatcher`](crate::OrderBatcher) does that.
    pub async fn place_batch(
        &self,
        item: &str,
        orders: &[BuyerOrder],
    ) -> Result<Vec<Result<Placed, Error>>, Error> {
        let request = Request::place_batch(&self.token, item, orders);
        let mut attempts = Attempts::default();
        let read = |response: &Response| batch::read(item, orders, response);
        let results = self.client.send_as(&request, &mut attempts, read).await?;
        // Each on a copy: that a line is lost says nothing about the others.
        let judged = results
            .into_iter()
            .map(|result| result.map_err(|error| attempts.clone().judge(error)));
        Ok(judged.collect())
    }

    /// [`Admin::place_batch`] without a repeat of the request.
    pub(crate) async fn place_batch_once(
        &self,
        item: &str,
        orders: &[BuyerOrder],
    ) -> Result<Vec<Result<Placed, Error>>, Error> {
        let request = Request::place_batch(&self.token, item, orders);
        let response = self.client.send_once(&request).await?;
        batch::read(item, orders, &response.into_success()?)
    }

    pub(crate) fn retry(&self) -> &RetryPolicy {
        self.client.retry()
    }

    /// A page of all items, by name.
    pub async fn items(&self, page: &PageRequest) -> Result<Page<ListedItem>, Error> {
        self.call(&Request::list_items(&self.token, page), Response::json)
            .await
    }

    /// All items, by name, page by page.
    pub fn all_items(&self) -> impl Stream<Item = Result<ListedItem, Error>> + use<> {
        let admin = self.clone();
        list::all(move |page| {
            let admin = admin.clone();
            async move { admin.items(&page).await }
        })
    }

    /// A page of the recorded orders of an item, those in one state or all.
    pub async fn item_orders(
        &self,
        item: &str,
        state: Option<OrderState>,
        page: &PageRequest,
    ) -> Result<Page<ListedOrder>, Error> {
        let request = Request::list_item_orders(&self.token, item, state, page);
        self.call(&request, Response::json).await
    }

    /// All recorded orders of an item, those in one state or all, page by page.
    pub fn all_item_orders(
        &self,
        item: &str,
        state: Option<OrderState>,
    ) -> impl Stream<Item = Result<ListedOrder, Error>> + use<> {
        let (admin, item) = (self.clone(), item.to_owned());
        list::all(move |page| {
            let (admin, item) = (admin.clone(), item.clone());
            async move { admin.item_orders(&item, state, &page).await }
        })
    }

    /// A page of the money that must be returned.
    pub async fn refunds_due(&self, page: &PageRequest) -> Result<Page<RefundDue>, Error> {
        self.call(
            &Request::list_refunds_due(&self.token, page),
            Response::json,
        )
        .await
    }

    /// All money that must be returned, page by page.
    pub fn all_refunds_due(&self) -> impl Stream<Item = Result<RefundDue, Error>> + use<> {
        let admin = self.clone();
        list::all(move |page| {
            let admin = admin.clone();
            async move { admin.refunds_due(&page).await }
        })
    }

    async fn call<T>(
        &self,
        request: &Request,
        read: impl Fn(&Response) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.client.call(request, read).await
    }
}

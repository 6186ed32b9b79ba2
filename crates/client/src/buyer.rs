//! The calls of a buyer.

use futures::Stream;
use uuid::Uuid;

use crate::{
    Cart, Client, Error, HoldChange, ListedOrder, NewCart, NewOrder, Order, Page, PageRequest,
    Placed, PlacedCart, Request, Response, Token, list,
};

/// Makes calls as a buyer.
#[derive(Clone, Debug)]
pub struct Buyer {
    client: Client,
    token: Token,
}

impl Buyer {
    pub(crate) fn new(client: Client, token: Token) -> Self {
        Self { client, token }
    }

    /// Places an order, and repeats the request with the same key while the outcome is unknown.
    ///
    /// A repeat of an order that has units succeeds too, and returns it as it is now. The order of
    /// the key may also have ended since: that is [`Error::NoLongerHeld`].
    pub async fn place(&self, order: &NewOrder) -> Result<Placed, Error> {
        let request = Request::place(&self.token, order);
        let read = |response: &Response| order.read(response).and_then(Placed::with_units);
        self.client.call(&request, read).await
    }

    /// Reads one of the buyer's orders from the ledger.
    pub async fn order(&self, id: Uuid) -> Result<Order, Error> {
        let request = Request::order(&self.token, id);
        self.client
            .call(&request, |response| Order::read(response, id))
            .await
    }

    /// Cancels a held order. Its units can be bought again.
    pub async fn cancel(&self, id: Uuid) -> Result<Order, Error> {
        let request = Request::cancel(&self.token, id);
        self.client
            .call(&request, |response| Order::read(response, id))
            .await
    }

    /// Has the hold of one of the buyer's orders last so many seconds from its creation, or longer
    /// if it does already; or names the checkout session in which the buyer pays. See
    /// [`HoldChange`].
    pub async fn extend_hold(&self, id: Uuid, hold: impl Into<HoldChange>) -> Result<Order, Error> {
        let request = Request::extend_hold(&self.token, id, &hold.into());
        self.client
            .call(&request, |response| Order::read(response, id))
            .await
    }

    /// Places a cart, and repeats the request with the same key while the outcome is unknown. All
    /// lines are held, or none: the problem then names the item ([`crate::Problem::item`]). Keep
    /// the key if the refusal is not final ([`Error::is_final`]). A cart of the key that has ended
    /// since is [`Error::NoLongerHeld`].
    pub async fn place_cart(&self, cart: &NewCart) -> Result<PlacedCart, Error> {
        let request = Request::place_cart(&self.token, cart);
        let read = |response: &Response| cart.read(response).and_then(PlacedCart::with_units);
        self.client.call(&request, read).await
    }

    /// Reads one of the buyer's carts.
    pub async fn cart(&self, id: Uuid) -> Result<Cart, Error> {
        let request = Request::cart(&self.token, id);
        self.client
            .call(&request, |response| Cart::read(response, id))
            .await
    }

    /// Has the holds of all lines of a cart last so many seconds from the creation of its first
    /// order, or longer if they do already; or names the checkout session in which the buyer pays.
    /// No item of the cart may have a smaller `max_hold_seconds`.
    pub async fn extend_cart(&self, id: Uuid, hold: impl Into<HoldChange>) -> Result<Cart, Error> {
        let request = Request::extend_cart(&self.token, id, &hold.into());
        self.client
            .call(&request, |response| Cart::read(response, id))
            .await
    }

    /// Cancels a held cart. The units of all lines can be bought again.
    pub async fn cancel_cart(&self, id: Uuid) -> Result<Cart, Error> {
        let request = Request::cancel_cart(&self.token, id);
        self.client
            .call(&request, |response| Cart::read(response, id))
            .await
    }

    /// A page of the buyer's recorded orders of all items.
    pub async fn orders(&self, page: &PageRequest) -> Result<Page<ListedOrder>, Error> {
        let request = Request::list_own_orders(&self.token, page);
        self.client.call(&request, Response::json).await
    }

    /// All recorded orders of the buyer, page by page.
    pub fn all_orders(&self) -> impl Stream<Item = Result<ListedOrder, Error>> + use<> {
        let buyer = self.clone();
        list::all(move |page| {
            let buyer = buyer.clone();
            async move { buyer.orders(&page).await }
        })
    }
}

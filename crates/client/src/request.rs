//! Every request of the API, in one place.
//!
//! A [`Request`] can be sent any number of times and stays the same request: the idempotency key is
//! part of it. Only the signature of a payment is computed for each attempt, because it contains
//! the time.

use std::time::SystemTime;

use bytes::Bytes;
use reqwest::{
    Method, RequestBuilder,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, IF_MATCH},
};
use serde::Serialize;
use uuid::Uuid;

use crate::{
    BuyerOrder, CartPayment, Error, HoldChange, ItemPatch, ItemState, NewCart, NewItem, NewOrder,
    OrderState, PageRequest, Payment, PaymentKey, StockChange, Token, batch::Body,
    signature::SIGNATURE,
};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const PREFER: HeaderName = HeaderName::from_static("prefer");
const RESPOND_ASYNC: HeaderValue = HeaderValue::from_static("respond-async");

/// A request of the API: all that distinguishes it from others, except the address.
#[derive(Clone, Debug)]
pub struct Request {
    method: Method,
    path: Path,
    credential: Credential,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Option<Bytes>,
}

#[derive(Clone, Debug)]
enum Credential {
    None,
    Bearer(Token),
    Signature(PaymentKey),
}

#[derive(Serialize)]
struct StateBody {
    state: ItemState,
}

#[derive(Serialize)]
struct StockBody {
    stock: u64,
}

#[derive(Serialize)]
struct WebhookBody<'a> {
    url: &'a str,
    kinds: &'a [String],
}

impl Request {
    /// Whether it changes nothing, however often it is sent.
    pub(crate) fn reads(&self) -> bool {
        self.method == Method::GET
    }

    /// `POST /v1/items/{item}/orders`: places an order.
    pub fn place(token: &Token, order: &NewOrder) -> Self {
        let path = item_path(order.item(), "/orders");
        let request = Self::at(Method::POST, path)
            .bearer(token)
            .header(IDEMPOTENCY_KEY, order.key().header())
            .body(order.body());
        if order.prefers_async() {
            request.header(PREFER, RESPOND_ASYNC)
        } else {
            request
        }
    }

    /// `POST /v1/items/{item}/orders:batch`: places orders of several buyers.
    pub fn place_batch(admin: &Token, item: &str, orders: &[BuyerOrder]) -> Self {
        Self::at(Method::POST, item_path(item, "/orders:batch"))
            .bearer(admin)
            .json(&Body { orders })
    }

    /// `GET /v1/orders/{order}`: shows an order to its buyer or an admin.
    pub fn order(token: &Token, order: Uuid) -> Self {
        Self::new(Method::GET, format!("/v1/orders/{order}")).bearer(token)
    }

    /// `DELETE /v1/orders/{order}`: cancels a held order.
    pub fn cancel(token: &Token, order: Uuid) -> Self {
        Self::new(Method::DELETE, format!("/v1/orders/{order}")).bearer(token)
    }

    /// `POST /v1/orders/{order}/payment`: reports a payment. The signature covers `payment`.
    pub fn pay(key: &PaymentKey, order: Uuid, payment: &Payment) -> Self {
        let request = Self::new(Method::POST, format!("/v1/orders/{order}/payment"));
        Self {
            credential: Credential::Signature(key.clone()),
            ..request.json(payment)
        }
    }

    /// `POST /v1/orders/{order}/refund`: notes that the money of an order was returned.
    pub fn refund(admin: &Token, order: Uuid) -> Self {
        Self::new(Method::POST, format!("/v1/orders/{order}/refund")).bearer(admin)
    }

    /// `POST /v1/carts`: places a cart.
    pub fn place_cart(token: &Token, cart: &NewCart) -> Self {
        Self::new(Method::POST, "/v1/carts".into())
            .bearer(token)
            .header(IDEMPOTENCY_KEY, cart.key().header())
            .json(&cart.body(None))
    }

    /// `POST /v1/carts`: places a cart for a buyer.
    pub fn place_cart_for(admin: &Token, buyer: &str, cart: &NewCart) -> Self {
        Self::new(Method::POST, "/v1/carts".into())
            .bearer(admin)
            .header(IDEMPOTENCY_KEY, cart.key().header())
            .json(&cart.body(Some(buyer)))
    }

    /// `GET /v1/carts/{cart}`: shows a cart to its buyer or an admin.
    pub fn cart(token: &Token, cart: Uuid) -> Self {
        Self::new(Method::GET, format!("/v1/carts/{cart}")).bearer(token)
    }

    /// `POST /v1/carts/{cart}/hold`: changes the holds of a cart.
    pub fn extend_cart(token: &Token, cart: Uuid, hold: &HoldChange) -> Self {
        Self::new(Method::POST, format!("/v1/carts/{cart}/hold"))
            .bearer(token)
            .json(hold)
    }

    /// `DELETE /v1/carts/{cart}`: cancels all lines of a held cart.
    pub fn cancel_cart(token: &Token, cart: Uuid) -> Self {
        Self::new(Method::DELETE, format!("/v1/carts/{cart}")).bearer(token)
    }

    /// `POST /v1/carts/{cart}/payment`: reports the payment of a cart.
    pub fn pay_cart(key: &PaymentKey, payment: &CartPayment) -> Self {
        let path = format!("/v1/carts/{}/payment", payment.cart());
        Self {
            credential: Credential::Signature(key.clone()),
            ..Self::new(Method::POST, path).json(payment)
        }
    }

    /// `POST /v1/carts/{cart}/refund`: notes that the money of a cart was returned.
    pub fn refund_cart(admin: &Token, cart: Uuid) -> Self {
        Self::new(Method::POST, format!("/v1/carts/{cart}/refund")).bearer(admin)
    }

    /// `POST /v1/carts/{cart}/lines/{order}/refund`: notes that the money of one line was returned.
    pub fn refund_cart_line(admin: &Token, cart: Uuid, order: Uuid) -> Self {
        let path = format!("/v1/carts/{cart}/lines/{order}/refund");
        Self::new(Method::POST, path).bearer(admin)
    }

    /// `POST /v1/items`: creates an item.
    pub fn create_item(admin: &Token, item: &NewItem) -> Self {
        Self::new(Method::POST, "/v1/items".into())
            .bearer(admin)
            .json(item)
    }

    /// `GET /v1/items/{item}`: shows an item; an admin also sees its segments and its version.
    pub fn item(item: &str, admin: Option<&Token>) -> Self {
        let request = Self::at(Method::GET, item_path(item, ""));
        match admin {
            Some(token) => request.bearer(token),
            None => request,
        }
    }

    /// `GET /v1/items:batch`: shows up to 100 items, as the public sees them.
    pub fn items<I: AsRef<str>>(items: impl IntoIterator<Item = I>) -> Self {
        let ids = items.into_iter().map(|item| escaped(item.as_ref()));
        let ids: Vec<_> = ids.collect();
        Self::new(
            Method::GET,
            format!("/v1/items:batch?ids={}", ids.join(",")),
        )
    }

    /// `PATCH /v1/items/{item}`: changes the limit, the price or the times of an item, if its
    /// version is `version`.
    pub fn patch_item(admin: &Token, item: &str, patch: &ItemPatch, version: Option<u64>) -> Self {
        Self::at(Method::PATCH, item_path(item, ""))
            .bearer(admin)
            .if_match(version)
            .json(patch)
    }

    /// `PUT /v1/items/{item}/state`: opens, pauses or closes an item, if its version is `version`.
    pub fn set_state(admin: &Token, item: &str, state: ItemState, version: Option<u64>) -> Self {
        Self::at(Method::PUT, item_path(item, "/state"))
            .bearer(admin)
            .if_match(version)
            .json(&StateBody { state })
    }

    /// `POST /v1/items/{item}/archive`: archives a closed item for good, if its version is
    /// `version`.
    pub fn archive_item(admin: &Token, item: &str, version: Option<u64>) -> Self {
        Self::at(Method::POST, item_path(item, "/archive"))
            .bearer(admin)
            .if_match(version)
    }

    /// `DELETE /v1/items/{item}`: deletes the orders of an archived item for good.
    pub fn drop_item(admin: &Token, item: &str) -> Self {
        Self::at(Method::DELETE, item_path(item, "")).bearer(admin)
    }

    /// `POST /v1/items/{item}/stock`: adds or withdraws units.
    pub fn change_stock(admin: &Token, item: &str, change: &StockChange) -> Self {
        Self::at(Method::POST, item_path(item, "/stock"))
            .bearer(admin)
            .header(IDEMPOTENCY_KEY, change.key().header())
            .json(change)
    }

    /// `PUT /v1/items/{item}/stock`: sets the stock of an item, if its version is `version`.
    pub fn set_stock(admin: &Token, item: &str, stock: u64, version: u64) -> Self {
        Self::at(Method::PUT, item_path(item, "/stock"))
            .bearer(admin)
            .if_match(Some(version))
            .json(&StockBody { stock })
    }

    /// `GET /v1/items/{item}/audit`: compares the stock counters with the ledger.
    pub fn audit(admin: &Token, item: &str) -> Self {
        Self::at(Method::GET, item_path(item, "/audit")).bearer(admin)
    }

    /// `GET /v1/items/{item}/audit?full=true`: also compares the ledger's counters with all orders.
    pub fn full_audit(admin: &Token, item: &str) -> Self {
        Self::at(Method::GET, item_path(item, "/audit?full=true")).bearer(admin)
    }

    /// `POST /v1/orders/{order}/hold`: changes the hold of an order.
    pub fn extend_hold(buyer: &Token, order: Uuid, hold: &HoldChange) -> Self {
        Self::new(Method::POST, format!("/v1/orders/{order}/hold"))
            .bearer(buyer)
            .json(hold)
    }

    /// `POST /v1/refunds-due/{id}/done`: notes that the money of a row was returned.
    pub fn refund_done(admin: &Token, id: &str) -> Self {
        let path = path("/v1/refunds-due/", ("row", id), "/done");
        Self::at(Method::POST, path).bearer(admin)
    }

    /// `GET /v1/items/{item}/journal`: lists the changes of an item, the latest first.
    pub fn journal(admin: &Token, item: &str, page: &PageRequest) -> Self {
        let path = item_path(item, &format!("/journal{}", page.query(None)));
        Self::at(Method::GET, path).bearer(admin)
    }

    /// `GET /v1/journal`: lists what admins have done that belongs to no item, the latest first.
    pub fn service_journal(admin: &Token, page: &PageRequest) -> Self {
        let path = format!("/v1/journal{}", page.query(None));
        Self::new(Method::GET, path).bearer(admin)
    }

    /// `GET /v1/items`: lists all items.
    pub fn list_items(admin: &Token, page: &PageRequest) -> Self {
        let path = format!("/v1/items{}", page.query(None));
        Self::new(Method::GET, path).bearer(admin)
    }

    /// `GET /v1/items/{item}/orders`: lists the orders of an item, those in one state or all.
    pub fn list_item_orders(
        admin: &Token,
        item: &str,
        state: Option<OrderState>,
        page: &PageRequest,
    ) -> Self {
        let path = item_path(item, &format!("/orders{}", page.query(state)));
        Self::at(Method::GET, path).bearer(admin)
    }

    /// `GET /v1/orders`: lists the buyer's own orders.
    pub fn list_own_orders(buyer: &Token, page: &PageRequest) -> Self {
        let path = format!("/v1/orders{}", page.query(None));
        Self::new(Method::GET, path).bearer(buyer)
    }

    /// `GET /v1/carts`: lists the buyer's own carts.
    pub fn list_own_carts(buyer: &Token, page: &PageRequest) -> Self {
        let path = format!("/v1/carts{}", page.query(None));
        Self::new(Method::GET, path).bearer(buyer)
    }

    /// `GET /v1/refunds-due`: lists the money that must be returned.
    pub fn list_refunds_due(admin: &Token, page: &PageRequest) -> Self {
        let path = format!("/v1/refunds-due{}", page.query(None));
        Self::new(Method::GET, path).bearer(admin)
    }

    /// `GET /v1/events`: the events after a cursor, or from the oldest. Waits so many seconds for
    /// the first of them.
    pub fn events(admin: &Token, after: Option<&str>, wait_seconds: u8) -> Self {
        let after = after
            .map(|after| format!("&after={}", escaped(after)))
            .unwrap_or_default();
        let path = format!("/v1/events?wait={wait_seconds}{after}");
        Self::new(Method::GET, path).bearer(admin)
    }

    /// `GET /v1/webhooks`: shows all webhooks.
    pub fn webhooks(admin: &Token) -> Self {
        Self::new(Method::GET, "/v1/webhooks".into()).bearer(admin)
    }

    /// `POST /v1/webhooks`: creates a webhook for these kinds of events, or for all. A repeat
    /// creates another one, so send it once.
    pub fn create_webhook(admin: &Token, url: &str, kinds: &[String]) -> Self {
        Self::new(Method::POST, "/v1/webhooks".into())
            .bearer(admin)
            .json(&WebhookBody { url, kinds })
    }

    /// `DELETE /v1/webhooks/{webhook}`: removes a webhook.
    pub fn remove_webhook(admin: &Token, webhook: Uuid) -> Self {
        Self::new(Method::DELETE, format!("/v1/webhooks/{webhook}")).bearer(admin)
    }

    /// `POST /v1/webhooks/{webhook}/enable`: enables a webhook that was disabled.
    pub fn enable_webhook(admin: &Token, webhook: Uuid) -> Self {
        let path = format!("/v1/webhooks/{webhook}/enable");
        Self::new(Method::POST, path).bearer(admin)
    }

    /// `POST /v1/webhooks/{webhook}/test`: sends a test event to a webhook.
    pub fn test_webhook(admin: &Token, webhook: Uuid) -> Self {
        let path = format!("/v1/webhooks/{webhook}/test");
        Self::new(Method::POST, path).bearer(admin)
    }

    /// `GET /metrics`: the metrics in Prometheus's text format.
    pub fn metrics() -> Self {
        Self::new(Method::GET, "/metrics".into())
    }

    fn new(method: Method, path: String) -> Self {
        Self::at(method, Ok(path))
    }

    fn at(method: Method, path: Path) -> Self {
        Self {
            method,
            path,
            credential: Credential::None,
            headers: Vec::new(),
            body: None,
        }
    }

    fn bearer(self, token: &Token) -> Self {
        Self {
            credential: Credential::Bearer(token.clone()),
            ..self
        }
    }

    fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    fn if_match(self, version: Option<u64>) -> Self {
        let quoted =
            version.and_then(|version| HeaderValue::try_from(format!("\"{version}\"")).ok());
        match quoted {
            Some(quoted) => self.header(IF_MATCH, quoted),
            None => self,
        }
    }

    /// The bodies of this crate are structs with string keys, so serialization cannot fail.
    fn json(self, body: &impl Serialize) -> Self {
        self.body(serde_json::to_vec(body).unwrap_or_default().into())
    }

    fn body(self, body: Bytes) -> Self {
        Self {
            body: Some(body),
            ..self
        }
    }

    /// The request for the instance at `server`, signed now. Fails if a name cannot be part of a
    /// path.
    pub(crate) fn build(
        &self,
        http: &reqwest::Client,
        server: &str,
    ) -> Result<RequestBuilder, Error> {
        let path = self.path.as_ref().map_err(|field| Error::InvalidInput {
            field,
            expected: "a name that is not empty, `.` or `..`",
        })?;
        let mut request = http.request(self.method.clone(), format!("{server}{path}"));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        match &self.credential {
            Credential::None => {}
            Credential::Bearer(token) => request = request.header(AUTHORIZATION, token.header()),
            Credential::Signature(key) => {
                let body = self.body.as_deref().unwrap_or_default();
                request = request.header(SIGNATURE, key.sign(body, SystemTime::now()));
            }
        }
        Ok(match &self.body {
            Some(body) => request
                .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
                .body(body.clone()),
            None => request,
        })
    }
}

/// A path, or the name of an argument that cannot be a segment of one.
type Path = Result<String, &'static str>;

fn item_path(item: &str, rest: &str) -> Path {
    path("/v1/items/", ("item", item), rest)
}

/// A path with a segment that the caller names: `(argument, text)`. A client resolves `.` and `..`,
/// even escaped, and an empty segment is another path. Each of them would reach another resource.
fn path(before: &str, (argument, text): (&'static str, &str), rest: &str) -> Path {
    if matches!(text, "" | "." | "..") {
        return Err(argument);
    }
    Ok(format!("{before}{}{rest}", escaped(text)))
}

/// The text with every byte escaped that no name contains.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-' => {
                escaped.push(char::from(byte));
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::{Request, item_path};
    use crate::{Error, Token};

    #[test]
    fn an_item_name_cannot_escape_from_its_path_segment() {
        assert_eq!(
            item_path("A.b_c-9", "/orders").as_deref(),
            Ok("/v1/items/A.b_c-9/orders")
        );
        assert_eq!(
            item_path("a/../b?c#d é", "").as_deref(),
            Ok("/v1/items/a%2F..%2Fb%3Fc%23d%20%C3%A9")
        );
        for name in ["", ".", ".."] {
            assert_eq!(item_path(name, "/orders"), Err("item"), "{name}");
        }
    }

    #[test]
    fn a_row_of_the_list_cannot_escape_from_its_path_segment() {
        let admin = Token::bearer("secret").unwrap();
        let done = |row| Request::refund_done(&admin, row).path;
        assert_eq!(
            done("7?x/y").as_deref(),
            Ok("/v1/refunds-due/7%3Fx%2Fy/done")
        );
        let http = reqwest::Client::new();
        for row in ["", ".", ".."] {
            let request = Request::refund_done(&admin, row);
            let built = request.build(&http, "http://127.0.0.1:1");
            assert!(
                matches!(built, Err(Error::InvalidInput { field: "row", .. })),
                "{row}"
            );
        }
    }
}

//! Lists: pages of rows, and streams of all rows.

use futures::stream::{self, Stream, TryStreamExt};
use jiff::Timestamp;
use serde::Deserialize;
use uuid::Uuid;

use crate::{Durability, Error, ItemState, OrderState};

/// Rows that a stream of all rows reads at a time.
const STREAM_ROWS: u16 = 1000;

/// Which page of a list to read. The default is the first one, with the service's default length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageRequest {
    after: Option<Cursor>,
    limit: Option<u16>,
}

/// Where a page starts. Only the service can issue one, and it is valid for one list.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Cursor(String);

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Page<T> {
    /// The rows: as many as were asked for unless the list ends here. With a state there may be
    /// fewer, and at least one.
    pub data: Vec<T>,
    /// Where the next page starts. `None`: the list ends here.
    pub next: Option<Cursor>,
}

/// An item in a list, with the units that the ledger has recorded.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ListedItem {
    /// The name.
    pub id: String,
    /// What buyers read.
    pub title: String,
    /// Whether the item sells.
    pub state: ItemState,
    /// Units that exist.
    pub stock: u64,
    /// Units that no recorded order has.
    pub available: u64,
    /// Units of orders that wait for a payment.
    pub held: u64,
    /// Units of paid orders.
    pub confirmed: u64,
    /// Units of ended orders that are not available again yet.
    pub returning: u64,
    /// The price of one unit in the currency's smallest unit.
    pub price: u64,
    /// ISO 4217.
    pub currency: String,
    /// Units that one buyer may hold; `None`: no limit.
    pub limit_per_buyer: Option<u32>,
    /// When the sale begins.
    pub opens_at: Option<Timestamp>,
    /// When the sale ends.
    pub closes_at: Option<Timestamp>,
    /// Seconds for which an order holds its units.
    pub hold_seconds: u32,
    /// When an order is acknowledged.
    pub durability: Durability,
    /// Number of stock counters.
    pub segment_count: u16,
    /// The version for conditional changes.
    pub version: u64,
}

/// An order in a list.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ListedOrder {
    /// The name of the order.
    pub id: Uuid,
    /// The name of the item.
    pub item: String,
    /// The buyer. Only admins see it.
    #[serde(default)]
    pub buyer: Option<String>,
    /// Where the order is in its life.
    pub state: OrderState,
    /// Number of units.
    pub quantity: u32,
    /// What the order costs, in the currency's smallest unit.
    pub amount: u64,
    /// ISO 4217.
    pub currency: String,
    /// The provider's id of the payment, if there was one.
    pub payment: Option<String>,
    /// When its units were taken. `None`: a late payment took units again.
    pub created_at: Option<Timestamp>,
    /// When the hold expires or has expired.
    pub expires_at: Timestamp,
    /// Rises with every transition.
    pub version: u64,
    /// The cart that it is a line of, which alone changes it.
    #[serde(default)]
    pub cart: Option<Uuid>,
}

/// Money that must be returned.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct RefundDue {
    /// The name of the row.
    pub id: String,
    /// Why it must be returned.
    pub reason: RefundReason,
    /// The order that was paid.
    pub order: Uuid,
    /// The item of the order.
    pub item: String,
    /// The buyer; `None` for an unmatched payment and a failed refund.
    pub buyer: Option<String>,
    /// The state of the order; for an unmatched payment, when it was reported.
    pub state: OrderState,
    /// Number of units; `None` for an unmatched payment.
    pub quantity: Option<u32>,
    /// The provider's id of the payment.
    pub payment: Option<String>,
    /// The amount in the currency's smallest unit; `None`: the report had none.
    pub amount: Option<u64>,
    /// ISO 4217.
    pub currency: String,
    /// When an unmatched payment was reported first.
    pub reported_at: Option<Timestamp>,
    /// The idempotency key for the provider's refund: with it, a repeat returns the money once.
    pub idempotency_key: String,
    /// The cart that the order is a line of, or that was paid.
    #[serde(default)]
    pub cart: Option<Uuid>,
}

/// Why money must be returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefundReason {
    /// The payment came after the hold had expired, and no units were left.
    RefundDue,
    /// No order could take the payment.
    UnmatchedPayment,
    /// The money was returned, and the refund has failed.
    RefundFailed,
}

impl PageRequest {
    /// The page that starts at `next` of an earlier page. `None`: the first page.
    #[must_use]
    pub fn after(self, next: Option<Cursor>) -> Self {
        Self {
            after: next,
            ..self
        }
    }

    /// With at most this many rows, from 1 to 1000.
    #[must_use]
    pub fn limit(self, rows: u16) -> Self {
        Self {
            limit: Some(rows),
            ..self
        }
    }

    /// The query of the request. Cursors are base64url, which needs no escaping.
    pub(crate) fn query(&self, state: Option<OrderState>) -> String {
        let state = state.map(|state| format!("state={state}"));
        let limit = self.limit.map(|limit| format!("limit={limit}"));
        let after = self
            .after
            .as_ref()
            .map(|after| format!("after={}", after.0));
        let parameters: Vec<_> = [state, limit, after].into_iter().flatten().collect();
        match parameters.is_empty() {
            true => String::new(),
            false => format!("?{}", parameters.join("&")),
        }
    }
}

/// All rows of the list that `read` reads page by page. It ends with the first error.
pub(crate) fn all<T, F>(read: impl Fn(PageRequest) -> F) -> impl Stream<Item = Result<T, Error>>
where
    F: Future<Output = Result<Page<T>, Error>>,
{
    let first = PageRequest::default().limit(STREAM_ROWS);
    let pages = stream::try_unfold(Some(first.clone()), move |request| {
        let page = request.map(&read);
        let first = first.clone();
        async move {
            let Some(page) = page else { return Ok(None) };
            let Page { data, next } = page.await?;
            let rows = stream::iter(data.into_iter().map(Ok));
            Ok::<_, Error>(Some((rows, next.map(|next| first.after(Some(next))))))
        }
    });
    pages.try_flatten()
}

//! Problems: how the service says why it did not do what was requested (RFC 9457).

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};

use crate::Response;

/// The body of a response that is no success.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Problem {
    /// The HTTP status of the response.
    #[serde(skip)]
    pub status: u16,
    /// What programs go by.
    pub code: ProblemCode,
    /// What people read.
    #[serde(default)]
    pub detail: String,
    /// The field or header of the request that was refused.
    #[serde(default)]
    pub field: Option<String>,
    /// The item because of which a cart was refused.
    #[serde(default)]
    pub item: Option<String>,
    /// Of a refused cart: whether its key is decided for good. If not, nothing was written, and a
    /// repeat with the same key is decided anew.
    #[serde(default, rename = "final")]
    pub is_final: Option<bool>,
    /// The state of the item with `not_open`, and of the order with `order_not_...`.
    #[serde(default)]
    pub state: Option<String>,
    /// With `not_open`: when the sale begins.
    #[serde(default)]
    pub opens_at: Option<Timestamp>,
    /// Seconds that the service asks to wait before a repeat.
    #[serde(skip)]
    pub retry_after: Option<u64>,
}

macro_rules! codes {
    ($($(#[$doc:meta])+ $code:ident = $text:literal,)+) => {
        /// The stable name of a problem.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum ProblemCode {
            $($(#[$doc])+ $code,)+
            /// The body was no problem+json: a proxy's answer, or not a Stockade.
            Missing,
            /// A code that this version of the client does not list.
            Other(String),
        }

        impl ProblemCode {
            /// The code as the API writes it.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$code => $text,)+
                    Self::Missing => "no problem+json",
                    Self::Other(text) => text,
                }
            }
        }

        impl From<String> for ProblemCode {
            fn from(text: String) -> Self {
                match &*text {
                    $($text => Self::$code,)+
                    _ => Self::Other(text),
                }
            }
        }
    };
}

codes! {
    /// A field of the request is not valid; [`Problem::field`] names it.
    InvalidRequest = "invalid_request",
    /// The token is missing, not valid, or not sufficient.
    Unauthorized = "unauthorized",
    /// The signature of a payment does not verify, or its time is too far away.
    InvalidSignature = "invalid_signature",
    /// No such path.
    NotFound = "not_found",
    /// The path has no such method.
    MethodNotAllowed = "method_not_allowed",
    /// No such item.
    ItemNotFound = "item_not_found",
    /// No such order, or another buyer's.
    OrderNotFound = "order_not_found",
    /// An item with this name exists and differs from the requested one.
    ItemExists = "item_exists",
    /// Too few units are left.
    SoldOut = "sold_out",
    /// The buyer would hold more units than one buyer may.
    BuyerLimitReached = "buyer_limit_reached",
    /// The item does not sell now.
    NotOpen = "not_open",
    /// The key belongs to another order or change.
    IdempotencyKeyReused = "idempotency_key_reused",
    /// The order has ended. The money of this payment must be returned.
    OrderNotPayable = "order_not_payable",
    /// Another payment has paid the order. The money of this payment must be returned.
    AlreadyPaid = "already_paid",
    /// The payment was reported for another order before.
    PaymentAlreadyUsed = "payment_already_used",
    /// The amount is not what the order costs.
    AmountMismatch = "amount_mismatch",
    /// The body of the payment names another order than the path.
    OrderMismatch = "order_mismatch",
    /// The order is paid, or has ended otherwise.
    OrderNotCancellable = "order_not_cancellable",
    /// The order is not paid.
    OrderNotRefundable = "order_not_refundable",
    /// No such cart, or another buyer's.
    CartNotFound = "cart_not_found",
    /// Placing the cart was not done in time. It has no units; place it with a new key.
    CartTimedOut = "cart_timed_out",
    /// The order is a line of a cart, which is paid and ended as a whole.
    OrderInCart = "order_in_cart",
    /// The cart has ended. The money of this payment must be returned.
    CartNotPayable = "cart_not_payable",
    /// The cart is being placed, is paid, or has ended otherwise.
    CartNotCancellable = "cart_not_cancellable",
    /// The cart is being placed, is paid, or has ended otherwise: it has no holds to extend.
    CartNotExtendable = "cart_not_extendable",
    /// The cart is not paid.
    CartNotRefundable = "cart_not_refundable",
    /// The body of the payment names another cart than the path.
    CartMismatch = "cart_mismatch",
    /// The item was changed since the version that the request names.
    VersionMismatch = "version_mismatch",
    /// The request must name the version of the item.
    IfMatchRequired = "if_match_required",
    /// More units would have to leave than are unsold.
    NotEnoughUnsold = "not_enough_unsold",
    /// The item is archived and cannot be changed.
    ItemArchived = "item_archived",
    /// The buyer has held orders, and the name stays until they have ended.
    BuyerHasHeldOrders = "buyer_has_held_orders",
    /// The item cannot be archived yet; the detail says what is open.
    ItemNotArchivable = "item_not_archivable",
    /// The item is not archived, or not for long enough; the detail says which.
    ItemNotPurgeable = "item_not_purgeable",
    /// An earlier withdrawal is still under way.
    WithdrawalOpen = "withdrawal_open",
    /// The body is larger than any valid one.
    PayloadTooLarge = "payload_too_large",
    /// The request did not arrive in time.
    RequestTimeout = "request_timeout",
    /// The request may or may not have taken effect.
    OutcomeUnknown = "outcome_unknown",
    /// A store that the request needs does not answer.
    Unavailable = "unavailable",
    /// A defect of the service.
    Internal = "internal",
}

impl Problem {
    pub(crate) fn read(response: &Response) -> Self {
        let problem = serde_json::from_slice(&response.body).unwrap_or_else(|_| Self {
            status: 0,
            code: ProblemCode::Missing,
            detail: String::new(),
            field: None,
            item: None,
            is_final: None,
            state: None,
            opens_at: None,
            retry_after: None,
        });
        Self {
            status: response.status,
            retry_after: response.retry_after,
            ..problem
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.status, self.code)?;
        if self.detail.is_empty() {
            return Ok(());
        }
        write!(f, ": {}", self.detail)
    }
}

impl fmt::Display for ProblemCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ProblemCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

//! The codes of problems.
//!
//! `make clients` writes this file from `clients/answers.json`, which has the reason for each code.

use super::Meaning;

codes! {
    /// Another payment has paid the order. The journal has this one.
    AlreadyPaid = "already_paid": Decision,
    /// The amount is not the price of the order. The order is unchanged, and the journal has the
    /// payment, unless its amount is missing or 0.
    AmountMismatch = "amount_mismatch": Decision,
    /// The buyer has orders that hold units. Nothing was changed.
    BuyerHasHeldOrders = "buyer_has_held_orders": Nothing,
    /// The buyer would hold or own more units than the item allows for one buyer. No unit was
    /// taken.
    BuyerLimitReached = "buyer_limit_reached": Decision,
    /// The signed body of a payment names another cart than the path. Nothing was changed.
    CartMismatch = "cart_mismatch": Decision,
    /// Only a held cart can be cancelled. Nothing was changed.
    CartNotCancellable = "cart_not_cancellable": Decision,
    /// Only the holds of a held cart can be extended. Nothing was changed.
    CartNotExtendable = "cart_not_extendable": Decision,
    /// No cart has this id, or it belongs to another buyer.
    CartNotFound = "cart_not_found": Nothing,
    /// The cart has ended, so it cannot take the payment. The journal has the payment.
    CartNotPayable = "cart_not_payable": Decision,
    /// Only a paid cart can be refunded. Nothing was changed.
    CartNotRefundable = "cart_not_refundable": Decision,
    /// Placing the cart was not done at its deadline. No line has units.
    CartTimedOut = "cart_timed_out": Decision,
    /// The payment is in another currency than the order. The journal has it.
    CurrencyMismatch = "currency_mismatch": Decision,
    /// Events behind the cursor were removed, because they were too old.
    CursorExpired = "cursor_expired": Nothing,
    /// A buyer called for an admin, or the admin lacks the scope that `detail` names.
    Forbidden = "forbidden": Nothing,
    /// The key belongs to an order of another quantity, or to another change of stock. Nothing was
    /// changed.
    IdempotencyKeyReused = "idempotency_key_reused": Decision,
    /// The change must name the version of the item that it was decided on.
    IfMatchRequired = "if_match_required": Nothing,
    /// The service has a defect. The change may have been made.
    Internal = "internal": Unknown,
    /// The cursor of a list of events is not one that this service gave out.
    InvalidCursor = "invalid_cursor": Nothing,
    /// A field, header or parameter is not valid. Nothing was changed.
    InvalidRequest = "invalid_request": Nothing,
    /// The signature of a payment does not verify, or its time is too far away.
    InvalidSignature = "invalid_signature": Nothing,
    /// The item is archived for good. Nothing was changed.
    ItemArchived = "item_archived": Nothing,
    /// An item with this id exists and differs from the requested one. Nothing was changed.
    ItemExists = "item_exists": Decision,
    /// The item is not closed, or something of it is still open: `detail` says what. Nothing was
    /// changed.
    ItemNotArchivable = "item_not_archivable": Decision,
    /// The item is not archived, or not for long enough, or no folder for exports is set: `detail`
    /// says which. Nothing was changed.
    ItemNotDroppable = "item_not_droppable": Decision,
    /// No item has this id.
    ItemNotFound = "item_not_found": Nothing,
    /// The path does not support this method.
    MethodNotAllowed = "method_not_allowed": Nothing,
    /// Fewer units are unsold than would have to be withdrawn. No unit was moved.
    NotEnoughUnsold = "not_enough_unsold": Nothing,
    /// The service has no such path.
    NotFound = "not_found": Nothing,
    /// The item does not sell now: it is outside its window, paused or closed.
    NotOpen = "not_open": Decision,
    /// The order is a line of a cart, which is paid, extended and cancelled as a whole, and
    /// refunded as a whole or line by line. A payment is in the journal.
    OrderInCart = "order_in_cart": Decision,
    /// The signed body of a payment names another order than the path. Nothing was changed.
    OrderMismatch = "order_mismatch": Decision,
    /// Only a held order can be cancelled. Nothing was changed.
    OrderNotCancellable = "order_not_cancellable": Decision,
    /// Only the hold of a held order can be extended. Nothing was changed.
    OrderNotExtendable = "order_not_extendable": Decision,
    /// No order has this id, or it belongs to another buyer.
    OrderNotFound = "order_not_found": Nothing,
    /// The order has ended, so it cannot take the payment. The journal has the payment.
    OrderNotPayable = "order_not_payable": Decision,
    /// Only a paid order can be refunded. Nothing was changed.
    OrderNotRefundable = "order_not_refundable": Decision,
    /// A store did not answer in time. The order or the change may have been made.
    OutcomeUnknown = "outcome_unknown": Unknown,
    /// The body exceeds the size limit. Nothing was changed.
    PayloadTooLarge = "payload_too_large": Nothing,
    /// The payment was reported for another order before. This order is unchanged.
    PaymentAlreadyUsed = "payment_already_used": Decision,
    /// The money of this payment was returned before it was reported for this order or cart.
    /// Nothing was changed.
    PaymentReturned = "payment_returned": Decision,
    /// The service has no secret that a payment's signature could be checked with.
    PaymentsNotConfigured = "payments_not_configured": Nothing,
    /// No money is due under this id.
    RefundNotFound = "refund_not_found": Nothing,
    /// The body of the request did not arrive in time. Nothing was changed.
    RequestTimeout = "request_timeout": Nothing,
    /// No unit was left for this order, and none was taken.
    SoldOut = "sold_out": Decision,
    /// The buyer or the client has sent too many requests. Nothing was changed.
    TooManyRequests = "too_many_requests": Nothing,
    /// There are as many webhooks as `STOCKADE_WEBHOOKS_MAX` allows. Nothing was changed.
    TooManyWebhooks = "too_many_webhooks": Nothing,
    /// The token is missing, not valid, not valid yet or expired; `detail` names the claim that is
    /// wrong.
    Unauthorized = "unauthorized": Nothing,
    /// Redis or the ledger does not answer. Nothing was changed.
    Unavailable = "unavailable": Nothing,
    /// The item was changed since the version in `If-Match`. Nothing was changed.
    VersionMismatch = "version_mismatch": Nothing,
    /// No webhook has this id.
    WebhookNotFound = "webhook_not_found": Nothing,
    /// An earlier withdrawal has not settled, so the stock is not known yet. Nothing was changed.
    WithdrawalOpen = "withdrawal_open": Nothing,
}

/// The decisions on a report of a payment after which its money must be returned.
pub(super) const RETURNS_MONEY: [ProblemCode; 5] = [
    ProblemCode::AlreadyPaid,
    ProblemCode::AmountMismatch,
    ProblemCode::CartNotPayable,
    ProblemCode::CurrencyMismatch,
    ProblemCode::OrderNotPayable,
];

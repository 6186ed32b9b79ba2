//! The codes of problems: each is written down once, with what follows from it. The page of
//! problems, the description of the API and `clients/answers.json` come from this table, and the
//! tables of the clients from that file (`make clients`).

use http::StatusCode;
use serde::{Serialize, Serializer};

/// What an answer tells of a request when the answer to an earlier attempt was lost.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterLost {
    /// The service has looked, so the answer counts for all attempts.
    Decision,
    /// The same, and the money of the payment that was reported must be returned.
    MoneyBack,
    /// This attempt changed nothing, and earlier ones may have.
    Nothing,
    /// This attempt may have taken effect.
    Unknown,
}

#[cfg(test)]
impl AfterLost {
    /// The word in `clients/answers.json`.
    fn word(self) -> &'static str {
        match self {
            Self::Decision | Self::MoneyBack => "decision",
            Self::Nothing => "nothing",
            Self::Unknown => "unknown",
        }
    }
}

macro_rules! codes {
    ($($variant:ident {
        code: $code:literal,
        status: $status:ident,
        meaning: $meaning:literal,
        remedy: $remedy:literal,
        lost: $after_lost:ident $why:literal,
    })*) => {
        /// The code of a problem.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Code {
            $(#[doc = $meaning] $variant,)*
        }

        impl Code {
            /// All codes, the ones that buyers see first.
            pub(super) const ALL: &[Self] = &[$(Self::$variant),*];

            pub(crate) fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }

            pub(super) fn status(self) -> StatusCode {
                match self { $(Self::$variant => StatusCode::$status,)* }
            }

            /// The cause, for people.
            pub(super) fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }

            /// What the caller should do.
            pub(super) fn remedy(self) -> &'static str {
                match self { $(Self::$variant => $remedy,)* }
            }

            /// What the answer tells if an earlier answer was lost, and why.
            #[cfg(test)]
            fn after_lost(self) -> (AfterLost, &'static str) {
                match self { $(Self::$variant => (AfterLost::$after_lost, $why),)* }
            }
        }
    };
}

codes! {
    SoldOut {
        code: "sold_out",
        status: CONFLICT,
        meaning: "No unit was left for this order, and none was taken.",
        remedy: "Show it to the buyer. Units of expired and cancelled orders come back, so a new order with a new key may succeed later. A refusal with `final` false wrote nothing: after a request of unknown outcome, repeat it with the same key.",
        lost: Decision "each segment has recorded that it declined, so every attempt ends so; from the sold-out cache, with final false, an attempt that still waits may take units",
    }
    BuyerLimitReached {
        code: "buyer_limit_reached",
        status: CONFLICT,
        meaning: "The buyer would hold or own more units than the item allows for one buyer. No unit was taken.",
        remedy: "Show it to the buyer.",
        lost: Decision "of a cart that was made it is recorded; else it comes with final false: an attempt that still waits may take units",
    }
    NotOpen {
        code: "not_open",
        status: CONFLICT,
        meaning: "The item does not sell now: it is outside its window, paused or closed.",
        remedy: "Show `opens_at` to the buyer, and repeat the request after it.",
        lost: Decision "of a cart that was made it is recorded, and an archived item gives no units; else it comes with final false: an attempt that still waits may take units",
    }
    IdempotencyKeyReused {
        code: "idempotency_key_reused",
        status: UNPROCESSABLE_ENTITY,
        meaning: "The key belongs to an order of another quantity, or to another change of stock. Nothing was changed.",
        remedy: "Use a new key for a new order. Repeat the first order with its own quantity.",
        lost: Decision "the key belongs to another order or cart for good, so no attempt of this one has units",
    }
    CartTimedOut {
        code: "cart_timed_out",
        status: CONFLICT,
        meaning: "Placing the cart was not done at its deadline. No line has units.",
        remedy: "Place it again with a new key.",
        lost: Decision "the cart has failed for good",
    }
    OutcomeUnknown {
        code: "outcome_unknown",
        status: SERVICE_UNAVAILABLE,
        meaning: "A store did not answer in time. The order or the change may have been made.",
        remedy: "Repeat the same request with the same key until it answers. Do not place another order instead.",
        lost: Unknown "a store did not answer in time",
    }
    Unavailable {
        code: "unavailable",
        status: SERVICE_UNAVAILABLE,
        meaning: "Redis or the ledger does not answer. Nothing was changed.",
        remedy: "Repeat the request after `Retry-After`.",
        lost: Nothing "a store refused or did not answer before anything ran",
    }
    InvalidRequest {
        code: "invalid_request",
        status: BAD_REQUEST,
        meaning: "A field, header or parameter is not valid. Nothing was changed.",
        remedy: "Correct what `field` or `errors` names.",
        lost: Nothing "fields, max_per_order and body limits are checked before the key",
    }
    InvalidCursor {
        code: "invalid_cursor",
        status: BAD_REQUEST,
        meaning: "The cursor of a list of events is not one that this service gave out.",
        remedy: "Use `next` of a page, or start without `after`.",
        lost: Nothing "only reads have it",
    }
    CursorExpired {
        code: "cursor_expired",
        status: GONE,
        meaning: "Events behind the cursor were removed, because they were too old.",
        remedy: "Start without `after`, and compare the orders that you know with the lists.",
        lost: Nothing "only reads have it",
    }
    Unauthorized {
        code: "unauthorized",
        status: UNAUTHORIZED,
        meaning: "The token is missing, not valid, not valid yet or expired; `detail` names the claim that is wrong.",
        remedy: "Send `Authorization: Bearer` once, with a buyer's JWT or an admin's token, as the call requires.",
        lost: Nothing "the token is checked before the key, and it may have expired since",
    }
    Forbidden {
        code: "forbidden",
        status: FORBIDDEN,
        meaning: "A buyer called for an admin, or the admin lacks the scope that `detail` names.",
        remedy: "Use the token of an admin who has the scope.",
        lost: Nothing "the scope is checked before the key",
    }
    InvalidSignature {
        code: "invalid_signature",
        status: BAD_REQUEST,
        meaning: "The signature of a payment does not verify, or its time is too far away.",
        remedy: "Sign the raw body with the payment secret and the present time.",
        lost: Nothing "the signature is checked before anything else",
    }
    PaymentsNotConfigured {
        code: "payments_not_configured",
        status: SERVICE_UNAVAILABLE,
        meaning: "The service has no secret that a payment's signature could be checked with.",
        remedy: "Set `STOCKADE_PAYMENT_SECRET` or `STOCKADE_STRIPE_SECRET`, and let the provider report the payment again.",
        lost: Nothing "this instance cannot check a signature, another one may",
    }
    ItemNotFound {
        code: "item_not_found",
        status: NOT_FOUND,
        meaning: "No item has this id.",
        remedy: "Check the id in the path. Of a cart, `detail` and `item` name the item.",
        lost: Nothing "the item is looked up before the key, perhaps in a copy of the ledger that is behind",
    }
    ItemNotArchivable {
        code: "item_not_archivable",
        status: CONFLICT,
        meaning: "The item is not closed, or something of it is still open: `detail` says what. Nothing was changed.",
        remedy: "Close the item, wait until `detail` is settled, and repeat the request.",
        lost: Decision "the item is not archived",
    }
    ItemNotDroppable {
        code: "item_not_droppable",
        status: CONFLICT,
        meaning: "The item is not archived, or not for long enough, or no folder for exports is set: `detail` says which. Nothing was changed.",
        remedy: "Archive the item, repeat the request after the time in `detail`, or set `STOCKADE_DROP_EXPORTS`.",
        lost: Decision "the item still exists",
    }
    ItemArchived {
        code: "item_archived",
        status: CONFLICT,
        meaning: "The item is archived for good. Nothing was changed.",
        remedy: "Create another item.",
        lost: Nothing "an earlier attempt may have come before the end",
    }
    BuyerHasHeldOrders {
        code: "buyer_has_held_orders",
        status: CONFLICT,
        meaning: "The buyer has orders that hold units. Nothing was changed.",
        remedy: "Repeat the request when they are paid, cancelled or expired.",
        lost: Nothing "the orders may be newer than an earlier attempt",
    }
    WebhookNotFound {
        code: "webhook_not_found",
        status: NOT_FOUND,
        meaning: "No webhook has this id.",
        remedy: "List the webhooks, and check the id in the path.",
        lost: Nothing "an earlier attempt may have removed it",
    }
    TooManyWebhooks {
        code: "too_many_webhooks",
        status: CONFLICT,
        meaning: "There are as many webhooks as `STOCKADE_WEBHOOKS_MAX` allows. Nothing was changed.",
        remedy: "Remove one that is not needed, or raise the setting.",
        lost: Nothing "an earlier attempt may have created the last one",
    }
    OrderNotFound {
        code: "order_not_found",
        status: NOT_FOUND,
        meaning: "No order has this id, or it belongs to another buyer.",
        remedy: "Check the id, and whose token the request has.",
        lost: Nothing "it may be looked up in a copy of the ledger that is behind",
    }
    CartNotFound {
        code: "cart_not_found",
        status: NOT_FOUND,
        meaning: "No cart has this id, or it belongs to another buyer.",
        remedy: "Check the id, and whose token the request has.",
        lost: Nothing "it may be looked up in a copy of the ledger that is behind",
    }
    NotFound {
        code: "not_found",
        status: NOT_FOUND,
        meaning: "The service has no such path.",
        remedy: "Look up the path in the API description.",
        lost: Nothing "it is about the path",
    }
    MethodNotAllowed {
        code: "method_not_allowed",
        status: METHOD_NOT_ALLOWED,
        meaning: "The path does not support this method.",
        remedy: "Look up the method in the API description.",
        lost: Nothing "it is about the path",
    }
    RequestTimeout {
        code: "request_timeout",
        status: REQUEST_TIMEOUT,
        meaning: "The body of the request did not arrive in time. Nothing was changed.",
        remedy: "Send the request again, faster.",
        lost: Nothing "the body did not arrive",
    }
    OrderNotPayable {
        code: "order_not_payable",
        status: CONFLICT,
        meaning: "The order has ended, so it cannot take the payment. The journal has the payment.",
        remedy: "Return the money.",
        lost: MoneyBack "the order cannot take this payment, and a payment that it took is answered with success",
    }
    AlreadyPaid {
        code: "already_paid",
        status: CONFLICT,
        meaning: "Another payment has paid the order. The journal has this one.",
        remedy: "Return the money of this payment.",
        lost: MoneyBack "another payment has paid the order",
    }
    PaymentAlreadyUsed {
        code: "payment_already_used",
        status: CONFLICT,
        meaning: "The payment was reported for another order before. This order is unchanged.",
        remedy: "Check with the provider which order was paid.",
        lost: Decision "the payment belongs to another order",
    }
    PaymentReturned {
        code: "payment_returned",
        status: CONFLICT,
        meaning: "The money of this payment was returned before it was reported for this order or cart. Nothing was changed.",
        remedy: "Nothing is due. The buyer has to pay again.",
        lost: Decision "the money of the payment was returned for good, so no attempt pays with it",
    }
    OrderInCart {
        code: "order_in_cart",
        status: CONFLICT,
        meaning: "The order is a line of a cart, which is paid, extended and cancelled as a whole, and refunded as a whole or line by line. A payment is in the journal.",
        remedy: "Use the calls of the cart that `cart` names. Return the money of a payment for the line alone.",
        lost: Decision "an order is in its cart for good",
    }
    CartNotPayable {
        code: "cart_not_payable",
        status: CONFLICT,
        meaning: "The cart has ended, so it cannot take the payment. The journal has the payment.",
        remedy: "Return the money.",
        lost: MoneyBack "the cart cannot take this payment, and a payment that it took is answered with success",
    }
    CartNotCancellable {
        code: "cart_not_cancellable",
        status: CONFLICT,
        meaning: "Only a held cart can be cancelled. Nothing was changed.",
        remedy: "Read the cart's `state`. A paid cart can be refunded.",
        lost: Decision "a cart that an attempt has cancelled is answered with success",
    }
    CartNotExtendable {
        code: "cart_not_extendable",
        status: CONFLICT,
        meaning: "Only the holds of a held cart can be extended. Nothing was changed.",
        remedy: "Read the cart's `state`.",
        lost: Decision "the cart has no holds, whatever an earlier attempt did",
    }
    CartNotRefundable {
        code: "cart_not_refundable",
        status: CONFLICT,
        meaning: "Only a paid cart can be refunded. Nothing was changed.",
        remedy: "Read the cart's `state`.",
        lost: Decision "a cart that an attempt has refunded is answered with success",
    }
    OrderNotCancellable {
        code: "order_not_cancellable",
        status: CONFLICT,
        meaning: "Only a held order can be cancelled. Nothing was changed.",
        remedy: "Read the order's `state`. A paid order can be refunded.",
        lost: Decision "an order that an attempt has cancelled is answered with success",
    }
    OrderNotExtendable {
        code: "order_not_extendable",
        status: CONFLICT,
        meaning: "Only the hold of a held order can be extended. Nothing was changed.",
        remedy: "Read the order's `state`. An expired order can still be paid, if units are left.",
        lost: Decision "the order has no hold, whatever an earlier attempt did",
    }
    RefundNotFound {
        code: "refund_not_found",
        status: NOT_FOUND,
        meaning: "No money is due under this id.",
        remedy: "List the refunds that are due, and check the id in the path.",
        lost: Nothing "an earlier attempt may have taken the row from the list",
    }
    OrderNotRefundable {
        code: "order_not_refundable",
        status: CONFLICT,
        meaning: "Only a paid order can be refunded. Nothing was changed.",
        remedy: "Read the order's `state`.",
        lost: Decision "an order that an attempt has refunded is answered with success",
    }
    ItemExists {
        code: "item_exists",
        status: CONFLICT,
        meaning: "An item with this id exists and differs from the requested one. Nothing was changed.",
        remedy: "Choose another id, or change the item that exists.",
        lost: Decision "the ledger compares with the item as it was created, whatever has changed since, so no attempt has created it",
    }
    NotEnoughUnsold {
        code: "not_enough_unsold",
        status: CONFLICT,
        meaning: "Fewer units are unsold than would have to be withdrawn. No unit was moved.",
        remedy: "Read the item, and decide again.",
        lost: Nothing "an earlier attempt may have withdrawn the units",
    }
    WithdrawalOpen {
        code: "withdrawal_open",
        status: CONFLICT,
        meaning: "An earlier withdrawal has not settled, so the stock is not known yet. Nothing was changed.",
        remedy: "Repeat the request after `Retry-After`.",
        lost: Nothing "the open withdrawal may be that of an earlier attempt",
    }
    VersionMismatch {
        code: "version_mismatch",
        status: PRECONDITION_FAILED,
        meaning: "The item was changed since the version in `If-Match`. Nothing was changed.",
        remedy: "Read the item, and decide again.",
        lost: Nothing "an earlier attempt may have made the version",
    }
    IfMatchRequired {
        code: "if_match_required",
        status: PRECONDITION_REQUIRED,
        meaning: "The change must name the version of the item that it was decided on.",
        remedy: "Send `If-Match` with the `ETag` that an admin gets with the item, weak or strong.",
        lost: Nothing "it is about the request",
    }
    CurrencyMismatch {
        code: "currency_mismatch",
        status: UNPROCESSABLE_ENTITY,
        meaning: "The payment is in another currency than the order. The journal has it.",
        remedy: "Return the payment, and charge the order in its own currency.",
        lost: MoneyBack "every attempt names the same currency",
    }
    AmountMismatch {
        code: "amount_mismatch",
        status: UNPROCESSABLE_ENTITY,
        meaning: "The amount is not the price of the order. The order is unchanged, and the journal has the payment, unless its amount is missing or 0.",
        remedy: "Return the money, or report the payment with its right amount.",
        lost: MoneyBack "every attempt names the same amount",
    }
    OrderMismatch {
        code: "order_mismatch",
        status: UNPROCESSABLE_ENTITY,
        meaning: "The signed body of a payment names another order than the path. Nothing was changed.",
        remedy: "Report the payment to the path of its order.",
        lost: Decision "every attempt names the same two orders",
    }
    CartMismatch {
        code: "cart_mismatch",
        status: UNPROCESSABLE_ENTITY,
        meaning: "The signed body of a payment names another cart than the path. Nothing was changed.",
        remedy: "Report the payment to the path of its cart.",
        lost: Decision "every attempt names the same two carts",
    }
    PayloadTooLarge {
        code: "payload_too_large",
        status: PAYLOAD_TOO_LARGE,
        meaning: "The body exceeds the size limit. Nothing was changed.",
        remedy: "Send a smaller body, or fewer orders in a batch.",
        lost: Nothing "the body is measured before it is read, and each instance has a limit of its own",
    }
    TooManyRequests {
        code: "too_many_requests",
        status: TOO_MANY_REQUESTS,
        meaning: "The buyer or the client has sent too many requests. Nothing was changed.",
        remedy: "Repeat the request after `Retry-After`.",
        lost: Nothing "rates are checked before the key",
    }
    Internal {
        code: "internal",
        status: INTERNAL_SERVER_ERROR,
        meaning: "The service has a defect. The change may have been made.",
        remedy: "Report it with the `X-Request-Id` of the response: the log has the error.",
        lost: Unknown "a defect after an unknown part of the work",
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Serialize;

    use super::{AfterLost, Code};
    use crate::http::meta::written;

    const ABOUT: &str = "What each code of docs/openapi.json says about a key, or about whatever else the request names, when an earlier attempt of the same request was lost. decision: the service has looked, so the answer counts for all attempts. nothing: this attempt changed nothing, and earlier ones may have. unknown: this attempt may have taken effect. A decision with final false has left no record: earlier attempts may still be under way, for twice the service's bound. returns_money: a report of a payment that was decided so leaves money to return. After another decision it must not be returned: the payment may have paid another order or cart, or its money was returned before. `make clients` writes this file and the tables of the clients.";

    #[derive(Serialize)]
    struct File {
        about: &'static str,
        codes: BTreeMap<&'static str, Row>,
    }

    #[derive(Serialize)]
    struct Row {
        status: u16,
        meaning: &'static str,
        lost: &'static str,
        why: &'static str,
        returns_money: bool,
    }

    /// The same text as `clients/answers.json`. With `STOCKADE_WRITE_OPENAPI=1` the test writes the file
    /// first (`make clients`).
    #[test]
    fn the_file_of_the_clients_is_this_table() {
        let row = |code: &Code| {
            let (after_lost, why) = code.after_lost();
            let row = Row {
                status: code.status().as_u16(),
                meaning: code.meaning(),
                lost: after_lost.word(),
                why,
                returns_money: after_lost == AfterLost::MoneyBack,
            };
            (code.as_str(), row)
        };
        let file = File {
            about: ABOUT,
            codes: Code::ALL.iter().map(row).collect(),
        };
        let text = serde_json::to_string_pretty(&file).unwrap() + "\n";
        assert!(
            written("clients/answers.json", &text) == text,
            "clients/answers.json is old: run `make clients`"
        );
    }
}

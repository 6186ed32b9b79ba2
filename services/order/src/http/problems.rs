//! The page of all problems: what each code means, and what to do. The `type` of a problem names
//! its place on the page.

use std::{fmt::Write as _, sync::LazyLock};

use axum::response::{Html, IntoResponse, Response};
use http::HeaderValue;

use super::protection;

/// Code, statuses, cause and remedy.
type Entry = (&'static str, &'static str, &'static str, &'static str);

/// All codes, the ones that buyers see first.
const PROBLEMS: &[Entry] = &[
    (
        "sold_out",
        "409",
        "No unit was left for this order, and none was taken.",
        "Show it to the buyer. Units of expired and cancelled orders come back, so a new order with a new key may succeed later. A refusal with `final` false wrote nothing: after a request of unknown outcome, repeat it with the same key.",
    ),
    (
        "buyer_limit_reached",
        "409",
        "The buyer would hold or own more units than the item allows for one buyer. No unit was taken.",
        "Show it to the buyer.",
    ),
    (
        "not_open",
        "409",
        "The item does not sell now: it is outside its window, paused or closed.",
        "Show `opens_at` to the buyer, and repeat the request after it.",
    ),
    (
        "idempotency_key_reused",
        "422",
        "The key belongs to an order of another quantity, or to another change of stock. Nothing was changed.",
        "Use a new key for a new order. Repeat the first order with its own quantity.",
    ),
    (
        "cart_timed_out",
        "409",
        "Placing the cart was not done at its deadline. No line has units.",
        "Place it again with a new key.",
    ),
    (
        "outcome_unknown",
        "503",
        "A store did not answer in time. The order or the change may have been made.",
        "Repeat the same request with the same key until it answers. Do not place another order instead.",
    ),
    (
        "unavailable",
        "503",
        "Redis or the ledger does not answer. Nothing was changed.",
        "Repeat the request after `Retry-After`.",
    ),
    (
        "invalid_request",
        "400",
        "A field, header or parameter is not valid. Nothing was changed.",
        "Correct what `field` or `errors` names.",
    ),
    (
        "invalid_cursor",
        "400",
        "The cursor of a list of events is not one that this service gave out.",
        "Use `next` of a page, or start without `after`.",
    ),
    (
        "cursor_expired",
        "410",
        "Events behind the cursor were removed, because they were too old.",
        "Start without `after`, and compare the orders that you know with the lists.",
    ),
    (
        "unauthorized",
        "401",
        "The token is missing, not valid, not valid yet or expired; `detail` names the claim that is wrong.",
        "Send `Authorization: Bearer` once, with a buyer's JWT or an admin's token, as the call requires.",
    ),
    (
        "forbidden",
        "403",
        "A buyer called for an admin, or the admin lacks the scope that `detail` names.",
        "Use the token of an admin who has the scope.",
    ),
    (
        "invalid_signature",
        "400",
        "The signature of a payment does not verify, or its time is too far away.",
        "Sign the raw body with the payment secret and the present time.",
    ),
    (
        "payments_not_configured",
        "503",
        "The service has no secret that a payment's signature could be checked with.",
        "Set `STOCKADE_PAYMENT_SECRET` or `STOCKADE_STRIPE_SECRET`, and let the provider report the payment again.",
    ),
    (
        "item_not_found",
        "404",
        "No item has this id.",
        "Check the id in the path. Of a cart, `detail` and `item` name the item.",
    ),
    (
        "item_not_archivable",
        "409",
        "The item is not closed, or something of it is still open: `detail` says what. Nothing was changed.",
        "Close the item, wait until `detail` is settled, and repeat the request.",
    ),
    (
        "item_not_droppable",
        "409",
        "The item is not archived, or not for long enough: `detail` says which. Nothing was changed.",
        "Archive the item, or repeat the request after the time in `detail`.",
    ),
    (
        "item_archived",
        "409",
        "The item is archived for good. Nothing was changed.",
        "Create another item.",
    ),
    (
        "buyer_has_held_orders",
        "409",
        "The buyer has orders that hold units. Nothing was changed.",
        "Repeat the request when they are paid, cancelled or expired.",
    ),
    (
        "webhook_not_found",
        "404",
        "No webhook has this id.",
        "List the webhooks, and check the id in the path.",
    ),
    (
        "too_many_webhooks",
        "409",
        "There are as many webhooks as `STOCKADE_WEBHOOKS_MAX` allows. Nothing was changed.",
        "Remove one that is not needed, or raise the setting.",
    ),
    (
        "order_not_found",
        "404",
        "No order has this id, or it belongs to another buyer.",
        "Check the id, and whose token the request has.",
    ),
    (
        "cart_not_found",
        "404",
        "No cart has this id, or it belongs to another buyer.",
        "Check the id, and whose token the request has.",
    ),
    (
        "not_found",
        "404",
        "The service has no such path.",
        "Look up the path in the API description.",
    ),
    (
        "method_not_allowed",
        "405",
        "The path does not support this method.",
        "Look up the method in the API description.",
    ),
    (
        "request_timeout",
        "408",
        "The body of the request did not arrive in time. Nothing was changed.",
        "Send the request again, faster.",
    ),
    (
        "order_not_payable",
        "409",
        "The order has ended, so it cannot take the payment. The journal has the payment.",
        "Return the money.",
    ),
    (
        "already_paid",
        "409",
        "Another payment has paid the order. The journal has this one.",
        "Return the money of this payment.",
    ),
    (
        "payment_already_used",
        "409",
        "The payment was reported for another order before. This order is unchanged.",
        "Check with the provider which order was paid.",
    ),
    (
        "payment_returned",
        "409",
        "The money of this payment was returned before it was reported for this order or cart. Nothing was changed.",
        "Nothing is due. The buyer has to pay again.",
    ),
    (
        "order_in_cart",
        "409",
        "The order is a line of a cart, which is paid, extended, cancelled and refunded as a whole. A payment is in the journal.",
        "Use the calls of the cart that `cart` names. Return the money of a payment for the line alone.",
    ),
    (
        "cart_not_payable",
        "409",
        "The cart has ended, so it cannot take the payment. The journal has the payment.",
        "Return the money.",
    ),
    (
        "cart_not_cancellable",
        "409",
        "Only a held cart can be cancelled. Nothing was changed.",
        "Read the cart's `state`. A paid cart can be refunded.",
    ),
    (
        "cart_not_extendable",
        "409",
        "Only the holds of a held cart can be extended. Nothing was changed.",
        "Read the cart's `state`.",
    ),
    (
        "cart_not_refundable",
        "409",
        "Only a paid cart can be refunded. Nothing was changed.",
        "Read the cart's `state`.",
    ),
    (
        "order_not_cancellable",
        "409",
        "Only a held order can be cancelled. Nothing was changed.",
        "Read the order's `state`. A paid order can be refunded.",
    ),
    (
        "order_not_extendable",
        "409",
        "Only the hold of a held order can be extended. Nothing was changed.",
        "Read the order's `state`. An expired order can still be paid, if units are left.",
    ),
    (
        "refund_not_found",
        "404",
        "No money is due under this id.",
        "List the refunds that are due, and check the id in the path.",
    ),
    (
        "order_not_refundable",
        "409",
        "Only a paid order can be refunded. Nothing was changed.",
        "Read the order's `state`.",
    ),
    (
        "item_exists",
        "409",
        "An item with this id exists and differs from the requested one. Nothing was changed.",
        "Choose another id, or change the item that exists.",
    ),
    (
        "not_enough_unsold",
        "409",
        "Fewer units are unsold than would have to be withdrawn. No unit was moved.",
        "Read the item, and decide again.",
    ),
    (
        "withdrawal_open",
        "409",
        "An earlier withdrawal has not settled, so the stock is not known yet. Nothing was changed.",
        "Repeat the request after `Retry-After`.",
    ),
    (
        "version_mismatch",
        "412",
        "The item was changed since the version in `If-Match`. Nothing was changed.",
        "Read the item, and decide again.",
    ),
    (
        "if_match_required",
        "428",
        "The change must name the version of the item that it was decided on.",
        "Send `If-Match` with the `ETag` that an admin gets with the item, weak or strong.",
    ),
    (
        "currency_mismatch",
        "422",
        "The payment is in another currency than the order. The journal has it.",
        "Return the payment, and charge the order in its own currency.",
    ),
    (
        "amount_mismatch",
        "422",
        "The amount is not the price of the order. The order is unchanged, and the journal has the payment, unless its amount is missing or 0.",
        "Return the money, or report the payment with its right amount.",
    ),
    (
        "order_mismatch",
        "422",
        "The signed body of a payment names another order than the path. Nothing was changed.",
        "Report the payment to the path of its order.",
    ),
    (
        "cart_mismatch",
        "422",
        "The signed body of a payment names another cart than the path. Nothing was changed.",
        "Report the payment to the path of its cart.",
    ),
    (
        "payload_too_large",
        "413",
        "The body exceeds the size limit. Nothing was changed.",
        "Send a smaller body, or fewer orders in a batch.",
    ),
    (
        "too_many_requests",
        "429",
        "The buyer or the client has sent too many requests. Nothing was changed.",
        "Repeat the request after `Retry-After`.",
    ),
    (
        "internal",
        "500",
        "The service has a defect. The change may have been made.",
        "Report it with the `X-Request-Id` of the response: the log has the error.",
    ),
];

/// Path of the page.
pub(crate) const PATH: &str = "/docs/problems";

/// Whether the page has this code.
pub(crate) fn has(code: &str) -> bool {
    PROBLEMS.iter().any(|(known, ..)| *known == code)
}

/// All codes.
pub(crate) fn codes() -> impl Iterator<Item = &'static str> {
    PROBLEMS.iter().map(|(code, ..)| *code)
}

/// Shows all problems.
pub(crate) async fn page() -> Response {
    static PAGE: LazyLock<String> = LazyLock::new(write_page);
    static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| protection::with_style(STYLE));
    protection::protected(Html(PAGE.as_str()).into_response(), POLICY.clone())
}

/// The style of the page. The policy has its hash.
const STYLE: &str = "body{max-width:44rem;margin:2rem auto;padding:0 1rem;font:1rem/1.5 sans-serif}:target{background:#ff8}";

fn write_page() -> String {
    // Without an icon browsers ask for /favicon.ico.
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Stockade: problems</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <style>{STYLE}</style>\n\
         <h1>Problems</h1>\n",
    );
    for (code, status, cause, remedy) in PROBLEMS {
        // No text has a character that HTML would read as markup; a test checks it.
        let _ = writeln!(
            page,
            "<h2 id=\"{code}\">{code} ({status})</h2>\n<p>{cause}</p>\n<p><b>What to do:</b> {remedy}</p>"
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use super::PROBLEMS;

    #[test]
    fn the_page_needs_no_escaping_and_has_each_code_once() {
        let mut codes = std::collections::BTreeSet::new();
        for (code, status, cause, remedy) in PROBLEMS {
            assert!(codes.insert(code), "{code}");
            let text =
                [code, status, cause, remedy].map(|text| text.contains(['<', '>', '&', '"']));
            assert_eq!(text, [false; 4], "{code}");
        }
    }

    #[test]
    fn the_table_of_the_api_page_has_the_same_codes() {
        let page = include_str!("../../../../docs/api.md");
        for (code, status, ..) in PROBLEMS {
            let mut rows = page
                .lines()
                .filter(|line| line.starts_with("| ") && line.contains(status));
            let named = format!("`{code}`");
            assert!(rows.any(|row| row.contains(&named)), "{status} {code}");
        }
    }
}

"""The codes of problems, by what they say about earlier attempts.

`make clients` writes this file from `clients/answers.json`, which has the reason for each code.
"""

#: The service has looked at the key, the order, the cart or the item. If an earlier attempt had
#: taken effect, the answer would be another one.
DECISIONS = frozenset(
    {
        "already_paid",
        "amount_mismatch",
        "buyer_limit_reached",
        "cart_mismatch",
        "cart_not_cancellable",
        "cart_not_extendable",
        "cart_not_payable",
        "cart_not_refundable",
        "cart_timed_out",
        "currency_mismatch",
        "idempotency_key_reused",
        "item_exists",
        "item_not_archivable",
        "item_not_droppable",
        "not_open",
        "order_in_cart",
        "order_mismatch",
        "order_not_cancellable",
        "order_not_extendable",
        "order_not_payable",
        "order_not_refundable",
        "payment_already_used",
        "payment_returned",
        "sold_out",
    }
)

#: This attempt has changed nothing. An earlier one may have: these are decided without a look at
#: it. A code that is in neither set, or none, leaves open what a status 408 or 5xx leaves open.
NOTHING_RAN = frozenset(
    {
        "buyer_has_held_orders",
        "cart_not_found",
        "cursor_expired",
        "forbidden",
        "if_match_required",
        "invalid_cursor",
        "invalid_request",
        "invalid_signature",
        "item_archived",
        "item_not_found",
        "method_not_allowed",
        "not_enough_unsold",
        "not_found",
        "order_not_found",
        "payload_too_large",
        "payments_not_configured",
        "refund_not_found",
        "request_timeout",
        "too_many_requests",
        "too_many_webhooks",
        "unauthorized",
        "unavailable",
        "version_mismatch",
        "webhook_not_found",
        "withdrawal_open",
    }
)

#: The decisions on a report of a payment after which its money must be returned.
RETURNS_MONEY = frozenset(
    {
        "already_paid",
        "amount_mismatch",
        "cart_not_payable",
        "currency_mismatch",
        "order_not_payable",
    }
)

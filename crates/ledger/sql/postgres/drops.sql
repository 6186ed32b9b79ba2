-- fragment: MONEY_IS_DUE
-- Whether the money of the order is to be returned: it found no units, its refund has failed, or a
-- refund is on its way, which may still fail. The limit keeps PostgreSQL from hashing all payments.
(state = 'refund_due'
 OR state = 'refunded' AND (
     SELECT owed.id FROM payments AS owed
     WHERE owed.id = orders.payment AND owed.due_refund IS NOT NULL LIMIT 1) IS NOT NULL
 OR (SELECT refunds.id FROM refunds
     WHERE refunds.payment = orders.payment AND refunds.state IN ('pending', 'requires_action')
     LIMIT 1) IS NOT NULL)

-- fragment: ENTRY_GOES
-- Entries that stay: those of money, those of the end of the item, and those of admins, except
-- about the holds of single orders. What is noted once stays, so that it is noted once.
once IS NULL
AND (actor IN ('reconciler', 'payment', 'publisher') OR action IN ('cancel', 'extend'))
AND action NOT IN ('archive', 'drop_request', 'drop_export', 'drop', 'unmatched_payment',
                   'refund_failed', 'payment_refunded')

-- fragment: ORDER_DOCUMENT
-- An order with what goes with it. A cart is written with each of its orders, because it goes with
-- the last one.
jsonb_build_object(
    'order', to_jsonb(orders),
    'sessions', (SELECT jsonb_agg(to_jsonb(checkout_sessions) ORDER BY place)
                 FROM checkout_sessions WHERE target = orders.id),
    'refunds', (SELECT jsonb_agg(to_jsonb(refunds) ORDER BY refunds.id)
                FROM refunds WHERE refunds.payment = orders.payment),
    'cart', (SELECT jsonb_build_object(
                 'cart', to_jsonb(carts),
                 'lines', (SELECT jsonb_agg(to_jsonb(lines) ORDER BY lines.place)
                           FROM cart_lines AS lines WHERE lines.cart = carts.id),
                 'sessions', (SELECT jsonb_agg(to_jsonb(sessions) ORDER BY sessions.place)
                              FROM checkout_sessions AS sessions
                              WHERE sessions.target = carts.id))
             FROM cart_lines JOIN carts ON carts.id = cart_lines.cart
             WHERE cart_lines.order_id = orders.id LIMIT 1))::text

-- name: ITEMS_TO_DROP
SELECT id FROM items WHERE drop_by IS NOT NULL AND dropped_at IS NULL ORDER BY id

-- name: ARCHIVED_BEFORE
SELECT id FROM items
WHERE archived_at <= to_timestamp($1::double precision / 1000) AND drop_by IS NULL
ORDER BY archived_at LIMIT $2

-- name: ORDERS_OWED
SELECT count(*) FROM orders WHERE id > $2 AND id <= $3 AND item = $1 AND {MONEY_IS_DUE}

-- name: ORDERS_PAGE
SELECT id, {ORDER_DOCUMENT} FROM orders
WHERE id >= $2 AND id > $3 AND id <= $4 AND item = $1 AND NOT {MONEY_IS_DUE}
ORDER BY id LIMIT $5

-- name: TIMES
-- From when until when the item had a sale.
SELECT (extract(epoch FROM created_at) * 1000)::bigint,
       (extract(epoch FROM archived_at) * 1000)::bigint
FROM items WHERE id = $1

-- name: EVENT_AT
-- The first event at this position or behind it, and when it happened.
SELECT xid::text::bigint, (extract(epoch FROM at) * 1000)::bigint FROM events
WHERE xid >= $1::bigint::text::xid8 ORDER BY events.xid, seq LIMIT 1

-- name: LAST_EVENT
SELECT xid::text::bigint, (extract(epoch FROM at) * 1000)::bigint FROM events
ORDER BY events.xid DESC, seq DESC LIMIT 1

-- name: TRANSFERS_PAGE
SELECT id, to_jsonb(transfers)::text FROM transfers
WHERE item = $1 AND id > $2 ORDER BY id LIMIT $3

-- name: JOURNAL_PAGE
SELECT id, to_jsonb(journal)::text FROM journal
WHERE item = $1 AND id > $2 AND {ENTRY_GOES} ORDER BY id LIMIT $3

-- name: LOCK_DROP
-- Not `FOR UPDATE`: a journal entry locks the key of its item, after its transaction has locked
-- what a drop deletes.
SELECT (extract(epoch FROM archived_at) * 1000)::bigint AS archived_ms, drop_by, dropped_orders,
       dropped_transfers, (extract(epoch FROM dropped_at) * 1000)::bigint AS dropped_ms
FROM items WHERE id = $1 FOR NO KEY UPDATE

-- name: WRITE_REQUEST
UPDATE items SET drop_by = $2 WHERE id = $1

-- name: LOCK_ORDERS
-- A statement of its own behind the locks: it sees what was committed while they were waited for.
SELECT id, {ORDER_DOCUMENT} FROM orders WHERE id = ANY($1) AND item = $2 AND NOT {MONEY_IS_DUE}

-- name: LOCK_TRANSFERS
SELECT id, to_jsonb(transfers)::text FROM transfers
WHERE id = ANY($1) AND item = $2 FOR UPDATE

-- name: LOCK_JOURNAL
SELECT id, to_jsonb(journal)::text FROM journal
WHERE id = ANY($1) AND item = $2 AND {ENTRY_GOES} FOR UPDATE

-- name: SETTLE_ORDERS
-- The payment of a cart is that of each of its lines: it is settled with the cart.
UPDATE payments SET is_settled = true, dropped_order = order_id,
    dropped_item = (SELECT orders.item FROM orders WHERE orders.id = payments.order_id)
WHERE id = ANY(ARRAY(
    SELECT payment FROM orders WHERE id = ANY($1) AND payment IS NOT NULL
      AND NOT EXISTS (SELECT FROM cart_lines WHERE order_id = orders.id) AND NOT {MONEY_IS_DUE}))

-- name: DELETE_ORDERS
DELETE FROM orders WHERE id = ANY($1) AND NOT {MONEY_IS_DUE}

-- name: DELETE_SESSIONS
-- Of orders, or of carts.
DELETE FROM checkout_sessions WHERE target = ANY($1)

-- name: CARTS_WITHOUT_ORDERS
SELECT DISTINCT cart FROM cart_lines JOIN carts ON carts.id = cart
WHERE order_id = ANY($1) AND due_at IS NULL AND NOT EXISTS (
    SELECT FROM cart_lines AS others JOIN orders ON orders.id = others.order_id
    WHERE others.cart = cart_lines.cart)

-- name: SETTLE_CARTS
UPDATE payments SET is_settled = true, (dropped_order, dropped_item) = (
    SELECT order_id, item FROM cart_lines WHERE cart = payments.order_id ORDER BY place LIMIT 1)
WHERE id = ANY(ARRAY(SELECT payment FROM carts WHERE id = ANY($1) AND payment IS NOT NULL))

-- name: DELETE_LINES
DELETE FROM cart_lines WHERE cart = ANY($1)

-- name: DELETE_CARTS
DELETE FROM carts WHERE id = ANY($1)

-- name: DELETE_TRANSFERS
DELETE FROM transfers WHERE id = ANY($1)

-- name: DELETE_JOURNAL
DELETE FROM journal WHERE id = ANY($1)

-- name: ROWS_LEFT
SELECT count(*) FILTER (WHERE {MONEY_IS_DUE}),
       count(*) FILTER (WHERE NOT {MONEY_IS_DUE})
       + (SELECT count(*) FROM transfers WHERE item = $1)
       + (SELECT count(*) FROM journal WHERE item = $1 AND {ENTRY_GOES})
FROM orders WHERE id BETWEEN $2 AND $3 AND item = $1

-- name: COUNT_DROPPED
UPDATE items
SET dropped_orders = dropped_orders + $2, dropped_transfers = dropped_transfers + $3,
    dropped_at = CASE WHEN $4 THEN now() END
WHERE id = $1

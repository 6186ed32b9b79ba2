-- `{}` is the document of a row, which follows the schema: `sale_rows.rs` puts it there.

-- fragment: MONEY_IS_DUE
-- Whether the money of the order is to be returned: it found no units, its refund has failed, or a
-- refund is on its way, which may still fail.
(state = 'refund_due'
 OR state = 'refunded' AND EXISTS (
     SELECT 1 FROM payments AS owed
     WHERE owed.id = orders.payment AND owed.due_refund IS NOT NULL)
 OR EXISTS (
     SELECT 1 FROM refunds
     WHERE refunds.payment = orders.payment AND refunds.state IN ('pending', 'requires_action')))

-- fragment: ENTRY_GOES
-- Entries that stay: those of money, those of the end of the item, and those of admins, except
-- about the holds of single orders. What is noted once stays, so that it is noted once.
once IS NULL
AND (actor IN ('reconciler', 'payment', 'publisher') OR action IN ('cancel', 'extend'))
AND action NOT IN ('archive', 'drop_request', 'drop_export', 'drop', 'unmatched_payment',
                   'refund_failed', 'payment_refunded')

-- name: ITEMS_TO_DROP
SELECT id FROM items WHERE drop_by IS NOT NULL AND dropped_at IS NULL ORDER BY id

-- name: ARCHIVED_BEFORE
SELECT id FROM items
WHERE archived_at <= ?1 AND drop_by IS NULL
ORDER BY archived_at LIMIT ?2

-- name: ORDERS_OWED
SELECT count(*) FROM orders WHERE id > ?2 AND id <= ?3 AND item = ?1 AND {MONEY_IS_DUE}

-- name: ORDERS_PAGE
SELECT id, {} FROM orders
WHERE id >= ?2 AND id > ?3 AND id <= ?4 AND item = ?1 AND NOT {MONEY_IS_DUE}
ORDER BY id LIMIT ?5

-- name: TIMES
-- From when until when the item had a sale.
SELECT created_at, archived_at FROM items WHERE id = ?1

-- name: EVENT_AT
-- The first event at this position or behind it, and when it happened.
SELECT seq, at FROM events WHERE seq >= ?1 ORDER BY seq LIMIT 1

-- name: LAST_EVENT
SELECT seq, at FROM events ORDER BY seq DESC LIMIT 1

-- name: TRANSFERS_PAGE
SELECT id, {} FROM transfers WHERE item = ?1 AND id > ?2 ORDER BY id LIMIT ?3

-- name: JOURNAL_PAGE
SELECT id, {} FROM journal WHERE item = ?1 AND id > ?2 AND {ENTRY_GOES} ORDER BY id LIMIT ?3

-- name: LOCK_DROP
-- The transaction already holds the write lock, which covers all rows.
SELECT archived_at AS archived_ms, drop_by, dropped_orders, dropped_transfers,
       dropped_at AS dropped_ms
FROM items WHERE id = ?1

-- name: WRITE_REQUEST
UPDATE items SET drop_by = ?2 WHERE id = ?1

-- name: LOCK_ORDERS
-- The transaction is the only writer, so all rows are locked.
SELECT id, {} FROM orders
WHERE id IN (SELECT unhex(value) FROM json_each(?1)) AND item = ?2 AND NOT {MONEY_IS_DUE}

-- name: LOCK_TRANSFERS
SELECT id, {} FROM transfers
WHERE id IN (SELECT unhex(value) FROM json_each(?1)) AND item = ?2

-- name: LOCK_JOURNAL
SELECT id, {} FROM journal
WHERE id IN (SELECT value FROM json_each(?1)) AND item = ?2 AND {ENTRY_GOES}

-- name: SETTLE_ORDERS
-- The payment of a cart is that of each of its lines: it is settled with the cart.
UPDATE payments SET is_settled = 1, dropped_order = order_id,
    dropped_item = (SELECT orders.item FROM orders WHERE orders.id = payments.order_id)
WHERE id IN (
    SELECT payment FROM orders WHERE id IN (SELECT unhex(value) FROM json_each(?1))
      AND NOT EXISTS (SELECT 1 FROM cart_lines WHERE order_id = orders.id) AND NOT {MONEY_IS_DUE})

-- name: DELETE_ORDERS
DELETE FROM orders
WHERE id IN (SELECT unhex(value) FROM json_each(?1)) AND NOT {MONEY_IS_DUE}

-- name: DELETE_SESSIONS
-- Of orders, or of carts.
DELETE FROM checkout_sessions WHERE target IN (SELECT unhex(value) FROM json_each(?1))

-- name: CARTS_WITHOUT_ORDERS
SELECT DISTINCT cart FROM cart_lines JOIN carts ON carts.id = cart
WHERE order_id IN (SELECT unhex(value) FROM json_each(?1)) AND due_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM cart_lines AS others JOIN orders ON orders.id = others.order_id
    WHERE others.cart = cart_lines.cart)

-- name: SETTLE_CARTS
UPDATE payments SET is_settled = 1, (dropped_order, dropped_item) = (
    SELECT order_id, item FROM cart_lines WHERE cart = payments.order_id ORDER BY place LIMIT 1)
WHERE id IN (SELECT payment FROM carts WHERE id IN (SELECT unhex(value) FROM json_each(?1)))

-- name: DELETE_LINES
DELETE FROM cart_lines WHERE cart IN (SELECT unhex(value) FROM json_each(?1))

-- name: DELETE_CARTS
DELETE FROM carts WHERE id IN (SELECT unhex(value) FROM json_each(?1))

-- name: DELETE_TRANSFERS
DELETE FROM transfers WHERE id IN (SELECT unhex(value) FROM json_each(?1))

-- name: DELETE_JOURNAL
DELETE FROM journal WHERE id IN (SELECT value FROM json_each(?1))

-- name: ROWS_LEFT
SELECT count(*) FILTER (WHERE {MONEY_IS_DUE}),
       count(*) FILTER (WHERE NOT {MONEY_IS_DUE})
       + (SELECT count(*) FROM transfers WHERE item = ?1)
       + (SELECT count(*) FROM journal WHERE item = ?1 AND {ENTRY_GOES})
FROM orders WHERE id BETWEEN ?2 AND ?3 AND item = ?1

-- name: COUNT_DROPPED
UPDATE items
SET dropped_orders = dropped_orders + ?2, dropped_transfers = dropped_transfers + ?3,
    dropped_at = ?4
WHERE id = ?1

-- fragment: LISTED_ITEMS
-- Items with the units of their segments.
SELECT {item_columns!},
    (SELECT coalesce(sum(available), 0) FROM segments AS units WHERE units.item = items.id)
        AS available,
    (SELECT coalesce(sum(held), 0) FROM segments AS units WHERE units.item = items.id)
        AS held,
    (SELECT coalesce(sum(confirmed), 0) FROM segments AS units WHERE units.item = items.id)
        AS confirmed,
    (SELECT coalesce(sum("returning"), 0) FROM segments AS units WHERE units.item = items.id)
        AS "returning"
FROM items

-- name: ITEMS
{LISTED_ITEMS} WHERE id > ?1 ORDER BY id LIMIT ?2

-- name: SOME_ITEMS
{LISTED_ITEMS} WHERE id IN (SELECT value FROM json_each(?1)) ORDER BY id

-- name: ITEM_ORDERS
SELECT {order_columns!} FROM orders
WHERE id > ?1 AND id <= ?2 AND item = ?3 AND (?4 IS NULL OR state = ?4)
ORDER BY id LIMIT ?5

-- name: SCAN
SELECT id, count(*) OVER ()
FROM (SELECT id FROM orders WHERE id > ?1 AND id <= ?2 ORDER BY id LIMIT ?3)
ORDER BY id DESC LIMIT 1

-- name: NEXT_HELD
-- The holds of all items are read, if the item has some: its counters say so. Without `INDEXED BY`,
-- SQLite may prefer the primary key and read every order; here and below.
SELECT orders.id
FROM (SELECT 1 FROM segments WHERE item = ?3 AND held > 0 LIMIT 1)
    CROSS JOIN orders INDEXED BY orders_due
WHERE state = 'held' AND id > ?1 AND id <= ?2 AND item = ?3 ORDER BY id LIMIT 1

-- name: NEXT_REFUND_DUE
SELECT id FROM orders INDEXED BY orders_refund_due
WHERE state = 'refund_due' AND id > ?1 AND id <= ?2 AND item = ?3 ORDER BY id LIMIT 1

-- name: NEXT_REJECTED
SELECT id FROM orders INDEXED BY orders_rejected
WHERE state = 'rejected' AND id > ?1 AND id <= ?2 AND item = ?3 ORDER BY id LIMIT 1

-- name: NEXT_UNDONE
-- The states are named again, as the index has them: then the one that is asked for is known to be among them.
SELECT id FROM orders INDEXED BY orders_undone
WHERE state IN ('cancelled', 'refunded') AND state = ?4 AND id > ?1 AND id <= ?2 AND item = ?3
ORDER BY id LIMIT 1

-- name: NEXT_CONFIRMED
-- No index has the orders of this state. The next one in any state, if the item has paid units: its counters
-- say so.
SELECT id FROM orders
WHERE id > ?1 AND id <= ?2 AND item = ?3
  AND EXISTS (SELECT 1 FROM segments WHERE segments.item = ?3 AND confirmed > 0)
ORDER BY id LIMIT 1

-- name: NEXT
-- In any state.
SELECT id FROM orders WHERE id > ?1 AND id <= ?2 AND item = ?3 ORDER BY id LIMIT 1

-- name: BUYER_ORDERS
-- Without `INDEXED BY`, SQLite may prefer the primary key and read every order.
SELECT {order_columns!} FROM orders INDEXED BY orders_of_buyer
WHERE buyer = ?1 AND id > ?2 ORDER BY id LIMIT ?3

-- name: REFUNDS_DUE
-- Without `INDEXED BY`, SQLite may prefer the primary key and read every order.
SELECT {order_columns!} FROM orders INDEXED BY orders_refund_due
WHERE state = 'refund_due' AND id > ?1 ORDER BY id LIMIT ?2

-- fragment: ENTRY_COLUMNS
-- The columns of an entry. That of a failed refund has what is due of its payment now, while it is
-- listed, and then what an admin has returned: other refunds of the payment may have failed or
-- succeeded since it was written.
id, at AS at_ms, item, actor, action, token, before,
CASE WHEN action = 'refund_failed' THEN json_set(after, '$.due', coalesce(
    (SELECT owed.due_amount FROM payments AS owed
     WHERE owed.id = journal.after ->> 'payment' AND owed.due_refund = journal.after ->> 'refund'),
    (SELECT done.after ->> 'due' FROM journal AS done
     WHERE done.item = journal.item AND done.once = 'payment_refunded ' || journal.id),
    after ->> 'due')) ELSE after END AS after

-- name: PAYMENTS_DUE
-- A payment that has paid something, whatever its entry names, is not due: its money is returned
-- with that.
SELECT {ENTRY_COLUMNS} FROM journal INDEXED BY journal_payments_due
WHERE action IN ('unmatched_payment', 'refund_failed') AND id > ?1
  AND (action <> 'refund_failed' OR {refund_failed_is_due!})
  AND (action <> 'unmatched_payment' OR (
        NOT EXISTS (SELECT 1 FROM journal AS done
            WHERE done.item = journal.item AND done.once = 'payment_refunded ' || journal.id)
    AND NOT EXISTS (SELECT 1 FROM payments AS paid
            WHERE paid.id = journal.after ->> 'payment'
              AND (paid.returned_at IS NOT NULL OR paid.is_settled
                OR EXISTS (SELECT 1 FROM orders
                    WHERE orders.id = paid.order_id AND orders.payment = paid.id)
                OR EXISTS (SELECT 1 FROM carts
                    WHERE carts.id = paid.order_id AND carts.payment = paid.id)))))
ORDER BY id LIMIT ?2

-- name: HELD_BY_END
-- Slot 0 is before the first span.
SELECT CASE WHEN expires_at < ?2 THEN 0 ELSE min((expires_at - ?2) / ?3 + 1, ?4) END AS slot,
       sum(quantity)
FROM orders WHERE item = ?1 AND state = 'held' GROUP BY slot

-- name: JOURNAL
SELECT id, at AS at_ms, item, actor, action, token, before, after
FROM journal WHERE item = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3

-- name: ENTRY
SELECT {ENTRY_COLUMNS} FROM journal WHERE id = ?1

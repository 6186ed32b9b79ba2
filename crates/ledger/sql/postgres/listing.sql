-- fragment: LISTED_ITEMS
-- Items with the units of their segments.
SELECT {item_columns!}, units.available, units.held, units.confirmed, units."returning"
FROM items CROSS JOIN LATERAL (
    SELECT coalesce(sum(available), 0)::bigint AS available,
           coalesce(sum(held), 0)::bigint AS held,
           coalesce(sum(confirmed), 0)::bigint AS confirmed,
           coalesce(sum("returning"), 0)::bigint AS "returning"
    FROM segments WHERE segments.item = items.id) AS units

-- name: ITEMS
{LISTED_ITEMS} WHERE id > $1 ORDER BY id LIMIT $2

-- name: SOME_ITEMS
{LISTED_ITEMS} WHERE id = ANY($1) ORDER BY id

-- name: ITEM_ORDERS
SELECT {order_columns!} FROM orders
WHERE id > $1 AND id <= $2 AND item = $3 AND ($4::text IS NULL OR state = $4)
ORDER BY id LIMIT $5

-- name: SCAN
SELECT id, count(*) OVER ()
FROM (SELECT id FROM orders WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3) AS scanned
ORDER BY id DESC LIMIT 1

-- name: NEXT_HELD
-- The holds of all items are read, if the item has some: its counters say so. The range stands
-- outside: the primary key has its order, and the rest of the sale would be read.
WITH held AS MATERIALIZED (
    SELECT id, item FROM orders WHERE state = 'held' AND expires_at > '-infinity'
      AND EXISTS (SELECT FROM segments WHERE segments.item = $3 AND segments.held > 0))
SELECT id FROM held WHERE id > $1 AND id <= $2 AND item = $3 ORDER BY id LIMIT 1

-- name: NEXT_REFUND_DUE
SELECT id FROM orders
WHERE state = 'refund_due' AND id > $1 AND id <= $2 AND item = $3 ORDER BY id LIMIT 1

-- name: NEXT_REJECTED
SELECT id FROM orders
WHERE state = 'rejected' AND id > $1 AND id <= $2 AND item = $3 ORDER BY id LIMIT 1

-- name: NEXT_UNDONE
-- The states are named again, as the index has them: then the one that is asked for is known to be among them.
SELECT id FROM orders
WHERE state IN ('cancelled', 'refunded') AND state = $4 AND id > $1 AND id <= $2 AND item = $3
ORDER BY id LIMIT 1

-- name: NEXT_CONFIRMED
-- No index has the orders of this state. The next one in any state, if the item has paid units: its counters
-- say so.
SELECT id FROM orders
WHERE id > $1 AND id <= $2 AND item = $3
  AND EXISTS (SELECT FROM segments WHERE segments.item = $3 AND confirmed > 0)
ORDER BY id LIMIT 1

-- name: NEXT
-- In any state.
SELECT id FROM orders WHERE id > $1 AND id <= $2 AND item = $3 ORDER BY id LIMIT 1

-- name: BUYER_ORDERS
-- A range of one name, in the order of its index, and not a name that is equal: then the primary
-- key would have the same order, and statistics of a ledger that had few buyers would choose it. A
-- page of a buyer of one order would read all orders.
SELECT {order_columns!} FROM orders
WHERE buyer ~>=~ $1 AND buyer ~<=~ $1 AND id > $2
ORDER BY buyer USING ~<~, id LIMIT $3

-- name: REFUNDS_DUE
SELECT {order_columns!} FROM orders WHERE state = 'refund_due' AND id > $1 ORDER BY id LIMIT $2

-- fragment: ENTRY_COLUMNS
-- The columns of an entry. That of a failed refund has what is due of its payment now, while it is
-- listed, and then what an admin has returned: other refunds of the payment may have failed or
-- succeeded since it was written.
id, (extract(epoch FROM at) * 1000)::bigint AS at_ms, item, actor, action, token, before::text,
CASE WHEN action = 'refund_failed' THEN jsonb_set(after, ARRAY['due'], coalesce(
    (SELECT to_jsonb(owed.due_amount) FROM payments AS owed
     WHERE owed.id = journal.after ->> 'payment' AND owed.due_refund = journal.after ->> 'refund'
     LIMIT 1),
    (SELECT done.after -> 'due' FROM journal AS done
     WHERE done.item = journal.item AND done.once = 'payment_refunded ' || journal.id LIMIT 1),
    after -> 'due', 'null')) ELSE after END::text AS after

-- name: PAYMENTS_DUE
-- A payment that has paid something, whatever its entry names, is not due: its money is returned
-- with that.
SELECT {ENTRY_COLUMNS} FROM journal
WHERE action IN ('unmatched_payment', 'refund_failed') AND id > $1
  AND (action <> 'refund_failed' OR {refund_failed_is_due!})
  AND (action <> 'unmatched_payment' OR (
        (SELECT done.id FROM journal AS done
         WHERE done.item = journal.item AND done.once = 'payment_refunded ' || journal.id
         LIMIT 1) IS NULL
    AND (SELECT paid.id FROM payments AS paid
         WHERE paid.id = journal.after ->> 'payment'
           AND (paid.returned_at IS NOT NULL OR paid.is_settled
             OR coalesce(
                (SELECT orders.id FROM orders
                 WHERE orders.id = paid.order_id AND orders.payment = paid.id LIMIT 1),
                (SELECT carts.id FROM carts
                 WHERE carts.id = paid.order_id AND carts.payment = paid.id LIMIT 1)) IS NOT NULL)
         LIMIT 1) IS NULL))
ORDER BY id LIMIT $2

-- name: HELD_BY_END
-- Slot 0 is before the first span.
SELECT least(greatest(
           floor((extract(epoch FROM expires_at) * 1000 - $2) / $3)::bigint + 1, 0), $4) AS slot,
       sum(quantity)::bigint
FROM orders WHERE item = $1 AND state = 'held' GROUP BY slot

-- name: JOURNAL
SELECT id, (extract(epoch FROM at) * 1000)::bigint AS at_ms, item, actor, action, token,
       before::text, after::text
FROM journal WHERE item = $1 AND id < $2 ORDER BY id DESC LIMIT $3

-- name: ENTRY
SELECT {ENTRY_COLUMNS} FROM journal WHERE id = $1

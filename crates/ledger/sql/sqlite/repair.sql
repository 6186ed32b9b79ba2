-- fragment: REMEMBERED
-- `json_each` has a column `id` as well.
orders.id AS id, segment, buyer, quantity, state, expires_at AS expires_ms, attempt

-- name: ITEM
SELECT {item_columns!}, fence FROM items WHERE id = ?1

-- name: ORDERS_IN
-- CROSS JOIN fixes the join order: for each range its part of the index.
SELECT {REMEMBERED}
FROM json_each(?2) AS wanted CROSS JOIN orders
    ON orders.id BETWEEN unhex(wanted.value ->> 0) AND unhex(wanted.value ->> 1)
    AND orders.item = ?1
ORDER BY orders.id

-- name: TRANSFERS
-- Two branches, each with its index.
SELECT {transfer_columns!} FROM transfers WHERE item = ?1 AND state <> 'done'
UNION
SELECT {transfer_columns!} FROM transfers WHERE id IN (SELECT unhex(value) FROM json_each(?2))

-- name: MEMORIES
SELECT {REMEMBERED} FROM orders
WHERE id >= ?2 AND id > ?3 AND id <= ?4 AND item = ?1 ORDER BY orders.id LIMIT ?5

-- name: TRANSFERS_OF
SELECT {transfer_columns!} FROM transfers WHERE item = ?1 AND id > ?2 ORDER BY id LIMIT ?3

-- name: RETURNS
SELECT id, item, segment, buyer, quantity FROM returns
WHERE id IN (SELECT unhex(value) FROM json_each(?1))

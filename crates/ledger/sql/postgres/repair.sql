-- fragment: REMEMBERED
id, segment::bigint, buyer, quantity, state,
(extract(epoch FROM expires_at) * 1000)::bigint AS expires_ms, attempt::bigint

-- name: ITEM
SELECT {item_columns!}, fence FROM items WHERE id = $1

-- name: ORDERS_IN
-- OFFSET keeps the two apart: for each range its part of the index. A join would begin with all
-- orders of all items once statistics say that the ranges are many.
SELECT found.*
FROM UNNEST($2::uuid[], $3::uuid[]) AS wanted (low, high)
CROSS JOIN LATERAL (
    SELECT {REMEMBERED} FROM orders WHERE id BETWEEN low AND high AND item = $1 OFFSET 0) AS found
ORDER BY found.id

-- name: TRANSFERS
-- Two branches, each with its index.
SELECT {transfer_columns!} FROM transfers WHERE item = $1 AND state <> 'done'
UNION
SELECT {transfer_columns!} FROM transfers WHERE id = ANY($2)

-- name: MEMORIES
SELECT {REMEMBERED} FROM orders
WHERE id >= $2 AND id > $3 AND id <= $4 AND item = $1 ORDER BY id LIMIT $5

-- name: TRANSFERS_OF
SELECT {transfer_columns!} FROM transfers WHERE item = $1 AND id > $2 ORDER BY id LIMIT $3

-- name: RETURNS
SELECT id, item, segment::bigint, buyer, quantity FROM returns WHERE id = ANY($1)

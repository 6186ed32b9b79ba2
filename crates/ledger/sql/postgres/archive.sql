-- name: NOTE_KEYS_REMOVED
UPDATE items
SET keys_removed_at = coalesce(keys_removed_at, to_timestamp($3::double precision / 1000))
WHERE id = $1 AND fence = $2 AND archived_at IS NOT NULL

-- name: FINAL_AUDIT
SELECT (extract(epoch FROM at) * 1000)::bigint AS at_ms, actor, token, report::text,
       (SELECT (extract(epoch FROM dropped_at) * 1000)::bigint FROM items
        WHERE items.id = final_audits.item) AS dropped_ms
FROM final_audits WHERE item = $1

-- name: LOCK_ROWS
SELECT {segment_columns!} FROM segments WHERE item = $1 ORDER BY 2 FOR UPDATE

-- name: HAS_OPEN_TRANSFERS
SELECT EXISTS (SELECT FROM transfers WHERE item = $1 AND state <> 'done')

-- name: WRITE_REQUEST
UPDATE items SET archive_by = $2 WHERE id = $1 AND archive_by IS NULL

-- name: ARCHIVE_ITEM
UPDATE items
SET archived_at = to_timestamp($2::double precision / 1000), epoch = $3, version = $4
WHERE id = $1

-- name: ARCHIVE_SEGMENTS
UPDATE segments SET archived = true, version = version + 1 WHERE item = $1

-- name: INSERT_AUDIT
INSERT INTO final_audits (item, at, actor, token, report)
VALUES ($1, to_timestamp($2::double precision / 1000), $3, $4, $5::jsonb)

-- fragment: LINE_THAT_LIVES
-- A line of the cart whose item is not archived. The limits keep PostgreSQL from joining a cart with
-- the lines of all, and a line with all items.
(SELECT order_id FROM cart_lines
 WHERE cart = carts.id AND (SELECT items.id FROM items
     WHERE items.id = cart_lines.item AND archived_at IS NULL LIMIT 1) IS NOT NULL
 LIMIT 1)

-- name: ORDERS_OF
-- The parameters are the buyer, and the range of the ids of the buyer's carts. This statement and
-- BUYER_PAGE find the orders by `orders_of_buyer` and look each order's item up, however many items
-- there are.
SELECT count(*) FILTER (WHERE state = 'held')
       + (SELECT count(*) FROM carts
          WHERE id >= $2 AND id <= $3 AND buyer = $1 AND state = 'placing'),
       count(*) FILTER (
           WHERE (SELECT archived_at FROM items WHERE items.id = orders.item) IS NULL)
       + (SELECT count(*) FROM carts
          WHERE id >= $2 AND id <= $3 AND buyer = $1 AND state = 'failed' AND due_at IS NOT NULL
            AND {LINE_THAT_LIVES} IS NOT NULL)
FROM orders WHERE buyer = $1

-- name: FORGET_ERASURE_KEY
DELETE FROM erasure_keys

-- name: BUYER_PAGE
-- A range of one name, as in BUYER_ORDERS.
SELECT id, (SELECT archived_at FROM items WHERE items.id = orders.item) IS NOT NULL FROM orders
WHERE buyer ~>=~ $1 AND buyer ~<=~ $1 AND id > $2
ORDER BY buyer USING ~<~, id LIMIT $3

-- name: REPLACE_BUYER
-- By the keys of a page. With `=` the index of the buyer could be chosen, and each page would read all
-- orders of the buyer.
UPDATE orders SET buyer = $2
WHERE id = ANY($3) AND buyer IS NOT DISTINCT FROM $1 RETURNING item

-- name: END_OF_CART_PAGE
SELECT id FROM carts WHERE id >= $1 AND id <= $2 ORDER BY id LIMIT 1 OFFSET $3

-- name: REPLACE_BUYER_OF_CARTS
-- No cart that is being placed: its process knows the name.
UPDATE carts SET buyer = $2
WHERE id >= $3 AND id <= $4 AND buyer = $1 AND state <> 'placing'
  AND ((state = 'failed' AND due_at IS NULL) OR {LINE_THAT_LIVES} IS NULL)

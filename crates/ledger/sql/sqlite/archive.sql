-- name: NOTE_KEYS_REMOVED
UPDATE items
SET keys_removed_at = coalesce(keys_removed_at, ?3)
WHERE id = ?1 AND fence = ?2 AND archived_at IS NOT NULL

-- name: FINAL_AUDIT
SELECT at AS at_ms, actor, token, report,
       (SELECT dropped_at FROM items
        WHERE items.id = final_audits.item) AS dropped_ms
FROM final_audits WHERE item = ?1

-- name: LOCK_ROWS
-- The transaction already holds the write lock, which covers all rows.
SELECT {segment_columns!} FROM segments WHERE item = ?1 ORDER BY segment

-- name: HAS_OPEN_TRANSFERS
SELECT EXISTS (SELECT 1 FROM transfers WHERE item = ?1 AND state <> 'done')

-- name: WRITE_REQUEST
UPDATE items SET archive_by = ?2 WHERE id = ?1 AND archive_by IS NULL

-- name: ARCHIVE_ITEM
UPDATE items
SET archived_at = ?2, epoch = ?3, version = ?4
WHERE id = ?1

-- name: ARCHIVE_SEGMENTS
UPDATE segments SET archived = 1, version = version + 1 WHERE item = ?1

-- name: INSERT_AUDIT
INSERT INTO final_audits (item, at, actor, token, report)
VALUES (?1, ?2, ?3, ?4, ?5)

-- name: ORDERS_OF
-- The parameters are the buyer, and the range of the ids of the buyer's carts. This statement and
-- BUYER_PAGE find the orders by `orders_of_buyer`, whatever an `ANALYZE` of an operator has
-- found, and look each order's item up.
SELECT count(*) FILTER (WHERE state = 'held')
       + (SELECT count(*) FROM carts
          WHERE id >= ?2 AND id <= ?3 AND buyer = ?1 AND state = 'placing'),
       count(*) FILTER (
           WHERE (SELECT archived_at FROM items WHERE items.id = orders.item) IS NULL)
       + (SELECT count(*) FROM carts
          WHERE id >= ?2 AND id <= ?3 AND buyer = ?1 AND state = 'failed' AND due_at IS NOT NULL
            AND EXISTS (SELECT 1 FROM cart_lines JOIN items ON items.id = cart_lines.item
                        WHERE cart = carts.id AND archived_at IS NULL))
FROM orders INDEXED BY orders_of_buyer WHERE buyer = ?1

-- name: FORGET_ERASURE_KEY
DELETE FROM erasure_keys

-- name: BUYER_PAGE
SELECT id, (SELECT archived_at FROM items WHERE items.id = orders.item) IS NOT NULL
FROM orders INDEXED BY orders_of_buyer
WHERE buyer = ?1 AND id > ?2 ORDER BY id LIMIT ?3

-- name: REPLACE_BUYER
-- By the keys of a page. Without `+` the index of the buyer could be chosen, and each page would read
-- all orders of the buyer.
UPDATE orders SET buyer = ?2
WHERE id IN (SELECT unhex(value) FROM json_each(?3)) AND +buyer = ?1 RETURNING item

-- name: END_OF_CART_PAGE
SELECT id FROM carts WHERE id >= ?1 AND id <= ?2 ORDER BY id LIMIT 1 OFFSET ?3

-- name: REPLACE_BUYER_OF_CARTS
-- No cart that is being placed: its process knows the name.
UPDATE carts SET buyer = ?2
WHERE id >= ?3 AND id <= ?4 AND buyer = ?1 AND state <> 'placing'
  AND ((state = 'failed' AND due_at IS NULL)
       OR NOT EXISTS (
           SELECT 1 FROM cart_lines JOIN items ON items.id = cart_lines.item
           WHERE cart = carts.id AND archived_at IS NULL))

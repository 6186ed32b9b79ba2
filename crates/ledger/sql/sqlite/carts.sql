-- name: CART
SELECT {cart_columns!} FROM carts WHERE id = ?1

-- name: CARTS
SELECT {cart_columns!} FROM carts WHERE id IN (SELECT unhex(value) FROM json_each(?1))

-- name: LINES
SELECT cart, order_id, item, quantity FROM cart_lines
WHERE cart IN (SELECT unhex(value) FROM json_each(?1)) ORDER BY cart, place

-- name: KNOWN
SELECT id FROM carts WHERE id IN (SELECT unhex(value) FROM json_each(?1))

-- name: OF_LINE
SELECT cart FROM cart_lines WHERE order_id = ?1

-- name: TAKE_OVER
UPDATE carts SET version = version + 1 WHERE id = ?1 AND state = 'placing'

-- fragment: DUE_CARTS
-- The subquery stays one search for each due cart.
SELECT {cart_columns!} FROM carts
WHERE due_at <= ?1
  AND (?3 = '[]' OR (SELECT count(*) FROM cart_lines WHERE cart = carts.id
                     AND item IN (SELECT value FROM json_each(?3))) = 0)

-- name: DUE
{DUE_CARTS} AND state = 'held' ORDER BY due_at LIMIT ?2

-- name: ABANDONED
{DUE_CARTS} AND state IN ('placing', 'failed') ORDER BY due_at LIMIT ?2

-- name: OF_BUYER
SELECT {cart_columns!} FROM carts
WHERE id > ?1 AND id <= ?2 AND buyer = ?3 ORDER BY id LIMIT ?4

-- name: LOCK_CART
-- The transaction already holds the write lock, which covers all rows.
SELECT state, version FROM carts WHERE id = ?1

-- name: LOCK_FREE_CARTS
SELECT id, state, version FROM carts WHERE id IN (SELECT unhex(value) FROM json_each(?1))

-- name: ORDERS
SELECT {order_columns!} FROM orders
WHERE id IN (SELECT order_id FROM cart_lines
             WHERE cart IN (SELECT unhex(value) FROM json_each(?1)))

-- name: DROPPED_LINES
SELECT count(*) FROM cart_lines AS line JOIN items ON items.id = line.item
WHERE line.cart = ?1 AND items.drop_by IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM orders WHERE orders.id = line.order_id)

-- name: WRITE_CART
UPDATE carts SET
    state = ?2, expires_at = ?3,
    due_at = ?4,
    payment = ?5, refusal = ?6, refused_item = ?7, version = ?8, amount = ?9
WHERE id = ?1

-- name: EXPIRE
UPDATE carts SET state = 'expired', due_at = NULL, version = version + 1
WHERE id IN (SELECT unhex(value) FROM json_each(?1))

-- name: CART
SELECT {cart_columns!} FROM carts WHERE id = $1

-- name: CARTS
SELECT {cart_columns!} FROM carts WHERE id = ANY($1)

-- name: LINES
SELECT cart, order_id, item, quantity FROM cart_lines WHERE cart = ANY($1) ORDER BY cart, place

-- name: KNOWN
SELECT id FROM carts WHERE id = ANY($1)

-- name: OF_LINE
SELECT cart FROM cart_lines WHERE order_id = $1

-- name: TAKE_OVER
UPDATE carts SET version = version + 1 WHERE id = $1 AND state = 'placing'

-- fragment: DUE_CARTS
-- The subquery stays one search for each due cart.
SELECT {cart_columns!} FROM carts
WHERE due_at <= to_timestamp($1::double precision / 1000)
  AND ($3::text[] = '{}'
       OR (SELECT count(*) FROM cart_lines WHERE cart = carts.id AND item = ANY($3)) = 0)

-- name: DUE
{DUE_CARTS} AND state = 'held' ORDER BY due_at LIMIT $2

-- name: ABANDONED
{DUE_CARTS} AND state IN ('placing', 'failed') ORDER BY due_at LIMIT $2

-- name: OF_BUYER
SELECT {cart_columns!} FROM carts
WHERE id > $1 AND id <= $2 AND buyer = $3 ORDER BY id LIMIT $4

-- name: LOCK_CART
SELECT state, version FROM carts WHERE id = $1 FOR UPDATE

-- name: LOCK_FREE_CARTS
SELECT id, state, version FROM carts WHERE id = ANY($1) FOR UPDATE SKIP LOCKED

-- name: ORDERS
SELECT {order_columns!} FROM orders
WHERE id = ANY(ARRAY(SELECT order_id FROM cart_lines WHERE cart = ANY($1)))

-- name: DROPPED_LINES
SELECT count(*) FROM cart_lines AS line JOIN items ON items.id = line.item
WHERE line.cart = $1 AND items.drop_by IS NOT NULL
  AND NOT EXISTS (SELECT FROM orders WHERE orders.id = line.order_id)

-- name: WRITE_CART
UPDATE carts SET
    state = $2, expires_at = to_timestamp($3::double precision / 1000),
    due_at = to_timestamp($4::double precision / 1000),
    payment = $5, refusal = $6, refused_item = $7, version = $8, amount = $9
WHERE id = $1

-- name: EXPIRE
UPDATE carts SET state = 'expired', due_at = NULL, version = version + 1 WHERE id = ANY($1)

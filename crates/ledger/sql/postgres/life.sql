-- name: ORDER
SELECT {order_columns!} FROM orders WHERE id = $1

-- fragment: DUE_ORDERS
-- A line of a cart ends with its cart. One that is held by a cart that has failed or expired is a
-- leftover: no process has released it, or a late payment never came to its end. The subquery
-- stays one search for each due order.
SELECT {order_columns!} FROM orders
WHERE state = 'held' AND expires_at <= to_timestamp($1::double precision / 1000)
  AND coalesce((SELECT carts.state FROM cart_lines JOIN carts ON carts.id = cart
                WHERE order_id = orders.id), 'failed') IN ('failed', 'expired')

-- name: DUE
{DUE_ORDERS} AND item <> ALL($3) ORDER BY expires_at LIMIT $2

-- name: DUE_OF_ITEM
-- It uses the same index and skips the due orders of other items. Only a manual repair asks for
-- one item, and a separate index would cost something for every order.
{DUE_ORDERS} AND item = $3 ORDER BY expires_at LIMIT $2

-- name: NAMED_SESSION
SELECT session FROM checkout_sessions WHERE target = $1 ORDER BY place DESC LIMIT 1

-- name: HAS_NAMED
SELECT EXISTS (SELECT FROM checkout_sessions WHERE target = $1 AND session = $2)

-- name: NAME_SESSION
INSERT INTO checkout_sessions (target, session, place, named_at)
SELECT $1, $2, coalesce(max(place), 0) + 1, now() FROM checkout_sessions WHERE target = $1
ON CONFLICT (target, session) DO NOTHING

-- name: PENDING_RETURNS
SELECT id, item, segment::bigint, buyer, quantity FROM returns
WHERE since < to_timestamp($1::double precision / 1000) AND item <> ALL($3) ORDER BY since LIMIT $2

-- name: PENDING_RETURNS_OF_ITEM
-- A statement of its own, so that each uses its index.
SELECT id, item, segment::bigint, buyer, quantity FROM returns
WHERE since < to_timestamp($1::double precision / 1000) AND item = $3 ORDER BY since LIMIT $2

-- name: PAID_ORDER
SELECT order_id FROM payments WHERE id = $1

-- name: RECORDED
SELECT id, state, attempt::bigint FROM orders WHERE id = ANY($1)

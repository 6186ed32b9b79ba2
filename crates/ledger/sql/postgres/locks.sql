-- apart

-- name: WEBHOOKS
-- Makes creations wait for each other, so that each counts the ones before it. It stops no
-- publisher and no reader.
LOCK TABLE webhooks IN SHARE UPDATE EXCLUSIVE MODE

-- name: CARTS_OF_ORDERS
SELECT id FROM carts
WHERE id = ANY(ARRAY(SELECT cart FROM cart_lines WHERE order_id = ANY($1)))
ORDER BY id FOR UPDATE

-- name: PAYMENTS_OF_ORDERS
SELECT id FROM payments
WHERE id = ANY(ARRAY(SELECT payment FROM orders WHERE id = ANY($1) AND payment IS NOT NULL))
ORDER BY id COLLATE "C" FOR UPDATE

-- name: ORDERS
SELECT id FROM orders WHERE id = ANY($1) ORDER BY id FOR UPDATE

-- name: IS_RETURNED
SELECT EXISTS (SELECT FROM payments WHERE id = $1 AND returned_at IS NOT NULL)

-- name: LOCK_PAYMENT
SELECT order_id, (extract(epoch FROM returned_at) * 1000)::bigint AS returned_ms,
       due_refund, due_amount, is_settled, dropped_order, dropped_item
FROM payments WHERE id = $1 FOR UPDATE

-- name: MARK_RETURNED
INSERT INTO payments (id, order_id, returned_at)
VALUES ($1, $2, to_timestamp($3::double precision / 1000))
ON CONFLICT (id) DO UPDATE SET
    returned_at = greatest(payments.returned_at, excluded.returned_at),
    order_id = CASE payments.order_id
        WHEN '00000000-0000-0000-0000-000000000000' THEN excluded.order_id
        ELSE payments.order_id END
RETURNING order_id

-- name: MARK_RETURN_UNCLAIMED
INSERT INTO unclaimed_returns (payment, since) VALUES ($1, now()) ON CONFLICT (payment) DO NOTHING

-- name: WRITE_DUE
UPDATE payments SET due_refund = $2, due_amount = $3 WHERE id = $1

-- name: PAYER
SELECT id AS order_id, (SELECT cart FROM cart_lines WHERE order_id = orders.id) AS cart,
       false AS is_cart, item, state, coalesce(payment = $2, false) AS is_paid
FROM orders WHERE id = $1
UNION ALL
(SELECT line.order_id, carts.id, true, line.item, carts.state,
        coalesce(carts.payment = $2, false)
 FROM carts JOIN cart_lines AS line ON line.cart = carts.id
 WHERE carts.id = $1 ORDER BY line.place LIMIT 1)

-- name: REFUNDS
SELECT id, state, amount, (extract(epoch FROM created_at) * 1000)::bigint AS created_ms,
       (extract(epoch FROM failed_at) * 1000)::bigint AS failed_ms, is_done
FROM refunds WHERE payment = $1 ORDER BY id

-- name: WRITE_REFUND
INSERT INTO refunds (id, payment, state, amount, created_at, failed_at, is_done)
VALUES ($1, $2, $3, $4, to_timestamp($5::double precision / 1000),
        to_timestamp($6::double precision / 1000), $7)
ON CONFLICT (id) DO UPDATE SET
    state = excluded.state, failed_at = excluded.failed_at, is_done = excluded.is_done

-- name: MARK_UNCLAIMED
UPDATE refunds SET unclaimed_at = now() WHERE id = $1

-- name: FORGET_UNCLAIMED
-- Two reports may delete at the same time: each takes the rows that the other has not locked.
DELETE FROM refunds WHERE id = ANY(ARRAY(
    SELECT id FROM refunds WHERE unclaimed_at < to_timestamp($1::double precision / 1000)
    ORDER BY unclaimed_at LIMIT 100 FOR UPDATE SKIP LOCKED))

-- name: CLAIM_REFUNDS
UPDATE refunds SET unclaimed_at = NULL WHERE payment = $1 AND unclaimed_at IS NOT NULL

-- name: CLAIM_RETURN
DELETE FROM unclaimed_returns WHERE payment = $1

-- name: IS_RETURNED
SELECT EXISTS (SELECT 1 FROM payments WHERE id = ?1 AND returned_at IS NOT NULL)

-- name: LOCK_PAYMENT
SELECT order_id, returned_at AS returned_ms,
       due_refund, due_amount, is_settled, dropped_order, dropped_item
FROM payments WHERE id = ?1

-- name: MARK_RETURNED
INSERT INTO payments (id, order_id, returned_at)
VALUES (?1, ?2, ?3)
ON CONFLICT (id) DO UPDATE SET
    returned_at = max(coalesce(returned_at, excluded.returned_at), excluded.returned_at),
    order_id = CASE order_id WHEN zeroblob(16) THEN excluded.order_id ELSE order_id END
RETURNING order_id

-- name: MARK_RETURN_UNCLAIMED
INSERT INTO unclaimed_returns (payment, since) VALUES (?1, ?2) ON CONFLICT (payment) DO NOTHING

-- name: WRITE_DUE
UPDATE payments SET due_refund = ?2, due_amount = ?3 WHERE id = ?1

-- name: PAYER
SELECT id AS order_id, (SELECT cart FROM cart_lines WHERE order_id = orders.id) AS cart,
       0 AS is_cart, item, state, coalesce(payment = ?2, 0) AS is_paid
FROM orders WHERE id = ?1
UNION ALL
SELECT * FROM (
    SELECT line.order_id, carts.id AS cart, 1, line.item, carts.state,
           coalesce(carts.payment = ?2, 0)
    FROM carts JOIN cart_lines AS line ON line.cart = carts.id
    WHERE carts.id = ?1 ORDER BY line.place LIMIT 1)

-- name: REFUNDS
SELECT id, state, amount, created_at AS created_ms,
       failed_at AS failed_ms, is_done
FROM refunds WHERE payment = ?1 ORDER BY id

-- name: WRITE_REFUND
INSERT INTO refunds (id, payment, state, amount, created_at, failed_at, is_done)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (id) DO UPDATE SET
    state = excluded.state, failed_at = excluded.failed_at, is_done = excluded.is_done

-- name: MARK_UNCLAIMED
UPDATE refunds SET unclaimed_at = ?2 WHERE id = ?1

-- name: FORGET_UNCLAIMED
DELETE FROM refunds WHERE id IN (
    SELECT id FROM refunds WHERE unclaimed_at < ?1 ORDER BY unclaimed_at LIMIT 100)

-- name: CLAIM_REFUNDS
UPDATE refunds SET unclaimed_at = NULL WHERE payment = ?1 AND unclaimed_at IS NOT NULL

-- name: CLAIM_RETURN
DELETE FROM unclaimed_returns WHERE payment = ?1

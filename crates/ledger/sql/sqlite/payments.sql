-- apart

-- name: FORGET_UNCLAIMED
DELETE FROM unclaimed_returns WHERE payment IN (
    SELECT payment FROM unclaimed_returns WHERE since < ?1 ORDER BY since LIMIT 100)
RETURNING payment

-- name: FORGET_PAYMENT
DELETE FROM payments WHERE id = ?1 AND order_id = zeroblob(16)

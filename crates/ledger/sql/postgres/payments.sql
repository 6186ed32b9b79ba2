-- apart

-- name: LOCK
SELECT pg_advisory_xact_lock(hashtextextended('stockade payment ' || $1, 0))

-- name: FORGET_UNCLAIMED
-- Two reports may delete at the same time: each takes the rows that the other has not locked.
WITH forgotten AS (
    DELETE FROM unclaimed_returns WHERE payment = ANY(ARRAY(
        SELECT payment FROM unclaimed_returns
        WHERE since < to_timestamp($1::double precision / 1000)
        ORDER BY since LIMIT 100 FOR UPDATE SKIP LOCKED))
    RETURNING payment)
DELETE FROM payments
WHERE id = ANY(ARRAY(SELECT payment FROM forgotten))
  AND order_id = '00000000-0000-0000-0000-000000000000'

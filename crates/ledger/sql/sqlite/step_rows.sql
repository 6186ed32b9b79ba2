-- apart

-- name: ARCHIVED_AMONG
-- The transaction already holds the write lock, which covers all rows.
SELECT item, segment FROM json_each(?1) AS wanted
JOIN segments ON item = wanted.value ->> 0 AND segment = wanted.value ->> 1
WHERE archived

-- name: INSERT_PAYMENTS
INSERT INTO payments (id, order_id)
SELECT value ->> 0, unhex(value ->> 1) FROM json_each(?1)
WHERE TRUE ON CONFLICT (id) DO NOTHING

-- name: PAYMENTS
SELECT payments.id, payments.order_id, payments.returned_at IS NOT NULL AS is_returned
FROM json_each(?1) JOIN payments ON payments.id = value ->> 0

-- name: COUNT
UPDATE segments
SET available = available + ?1, held = held + ?2,
    confirmed = confirmed + ?3, "returning" = "returning" + ?4,
    version = version + 1
WHERE item = ?5 AND segment = ?6

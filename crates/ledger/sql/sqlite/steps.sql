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

-- fragment: STEPPED
UPDATE orders
SET state = new.state, payment = coalesce(new.payment, orders.payment),
    version = orders.version + 1
FROM (SELECT unhex(value ->> 0) AS id, value ->> 1 AS version, value ->> 2 AS state,
             value ->> 3 AS payment
      FROM json_each(?1)) AS new
WHERE orders.id = new.id

-- name: STEP
{STEPPED} AND orders.version = new.version RETURNING id

-- name: STEP_UNCHECKED
{STEPPED} RETURNING id

-- name: SET_DEADLINES
UPDATE orders SET expires_at = ?1, version = orders.version + 1
FROM (SELECT unhex(value ->> 0) AS id, value ->> 1 AS version FROM json_each(?2)) AS known
WHERE orders.id = known.id AND orders.version = known.version AND orders.state = 'held'

-- name: COUNT
UPDATE segments
SET available = available + ?1, held = held + ?2,
    confirmed = confirmed + ?3, "returning" = "returning" + ?4,
    version = version + 1
WHERE item = ?5 AND segment = ?6

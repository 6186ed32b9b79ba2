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

-- fragment: STEPPED
UPDATE orders AS o
SET state = new.state, payment = coalesce(new.payment, o.payment), version = o.version + 1
FROM UNNEST($1::uuid[], $2::bigint[], $3::text[], $4::text[]) AS new (id, version, state, payment)
WHERE o.id = new.id

-- name: STEP
{STEPPED} AND o.version = new.version RETURNING o.id

-- name: STEP_UNCHECKED
{STEPPED} RETURNING o.id

-- name: SET_DEADLINES
UPDATE orders AS o
SET expires_at = to_timestamp($1::double precision / 1000), version = o.version + 1
FROM UNNEST($2::uuid[], $3::bigint[]) AS known (id, version)
WHERE o.id = known.id AND o.version = known.version AND o.state = 'held'

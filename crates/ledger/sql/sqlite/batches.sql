-- apart

-- name: INSERT
-- `WHERE true` keeps SQLite from reading ON CONFLICT as part of a join.
INSERT INTO orders (id, item, segment, buyer, quantity, state, expires_at, created_at, price)
SELECT unhex(value ->> 0), value ->> 1, value ->> 2, value ->> 3, value ->> 4, 'held',
       value ->> 5, value ->> 6, value ->> 7
FROM json_each(?1) WHERE true ON CONFLICT (id) DO NOTHING RETURNING id

-- name: COMPARE_AND_SET
UPDATE segments
SET allocated = ?1, available = ?2, held = ?3, confirmed = ?4, "returning" = ?5, checkpoint = ?6,
    anchor = ?7, fence = ?8, version = version + 1
WHERE item = ?9 AND segment = ?10 AND version = ?11 AND checkpoint IS ?12

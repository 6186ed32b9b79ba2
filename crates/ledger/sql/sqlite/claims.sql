-- apart

-- name: ROWS
-- Without LIMIT: the plan would depend on its value, so SQLite would prepare the statement anew for
-- each claim.
SELECT {segment_columns!},
       (SELECT items.segments FROM items WHERE items.id = segments.item) AS width,
       (SELECT items.hold_seconds FROM items WHERE items.id = segments.item) AS hold_seconds
FROM json_each(?1) AS wanted
JOIN segments ON item = wanted.value ->> 0 AND segment = wanted.value ->> 1
WHERE NOT archived ORDER BY wanted.key

-- apart

-- name: ROWS
SELECT {segment_columns!},
       (SELECT items.segments FROM items WHERE items.id = segments.item) AS width,
       (SELECT items.hold_seconds FROM items WHERE items.id = segments.item) AS hold_seconds
FROM json_each(?1) AS wanted
JOIN segments ON item = wanted.value ->> 0 AND segment = wanted.value ->> 1
WHERE NOT archived ORDER BY wanted.key LIMIT ?2

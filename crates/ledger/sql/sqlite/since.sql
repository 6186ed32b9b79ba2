-- name: PLACE
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0)

-- name: TOLD
-- ?1: position. ?2: item. ?3: kinds. ?4: most events. No event behind a position was seen.
SELECT count(*),
       coalesce(sum(CASE WHEN item = ?2 AND kind IN (SELECT value FROM json_each(?3))
           THEN bytes ELSE 0 END), 0) / 16,
       (SELECT seq > ?1 FROM events_removed),
       ?1 > coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0)
FROM (SELECT item, kind, length(orders) AS bytes FROM events WHERE seq > ?1 ORDER BY seq LIMIT ?4)

-- name: CHANGED
-- ?1: position. ?2: item. ?3: kinds.
SELECT kind, orders FROM events
WHERE seq > ?1 AND item = ?2 AND kind IN (SELECT value FROM json_each(?3))
ORDER BY seq

-- name: LOOK_UP
SELECT changed.value ->> 1, segment, state, attempt > 0, sum(quantity)
FROM json_each(?1) AS changed
LEFT JOIN orders ON orders.id = unhex(changed.value ->> 0) AND orders.item = ?2
GROUP BY 1, 2, 3, 4

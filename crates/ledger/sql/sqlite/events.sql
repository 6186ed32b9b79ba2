-- name: READ
-- There is one writer at a time, so the numbers of events are the order of their commits.
SELECT 0 AS xid, seq, at AS at_ms, item, kind,
       orders, data
FROM events
WHERE seq > ?1
ORDER BY seq LIMIT ?2

-- name: CHECK_CURSOR
-- A cursor with a transaction is none of this database.
SELECT ?2 <> '0'
         OR ?1 > coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0),
       0, seq
FROM events_removed

-- name: END_CURSOR
SELECT 0, coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0)

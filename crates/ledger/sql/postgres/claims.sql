-- apart

-- fragment: TURN
-- The key of a segment's turn. Its high bits are a hash of the segment's name with our prefix, so
-- that it differs from other advisory locks of the database.
hashtextextended('stockade segment ' || of_item || ':' || number, 0)

-- name: CLAIM
-- Recorders share the segments instead of queueing for them. A recorder or a repair holds the
-- segment's turn, an advisory lock, and other recorders skip the segment. The row's lock cannot
-- serve for this: a transition also holds it for a moment, and a recorder that skipped the segment
-- because of a transition would not come back for it. For the rows, a recorder waits, in the common
-- lock order ($3).
WITH wanted AS MATERIALIZED (
    SELECT of_item, number, rank
    FROM UNNEST($1::text[], $2::integer[], $3::bigint[])
        WITH ORDINALITY AS wanted (of_item, number, rank, place)
    JOIN segments ON item = of_item AND segment = number ORDER BY place),
mine AS MATERIALIZED (SELECT * FROM wanted WHERE pg_try_advisory_xact_lock({TURN}) LIMIT $4)
SELECT {segment_columns!},
       (SELECT items.segments::bigint FROM items WHERE items.id = of_item) AS width,
       (SELECT items.hold_seconds FROM items WHERE items.id = of_item) AS hold_seconds
FROM mine JOIN segments ON item = of_item AND segment = number
WHERE NOT archived ORDER BY rank FOR UPDATE OF segments

-- name: LOCK_ROWS
SELECT {segment_columns!}
FROM UNNEST($1::text[], $2::integer[]) WITH ORDINALITY AS wanted (of_item, number, place)
JOIN segments ON item = of_item AND segment = number ORDER BY place FOR UPDATE OF segments

-- name: REPAIR_IDLE_TIMEOUT
-- While Redis gets what the outboxes have, the transaction is idle for longer than a recorder ever
-- is. The orders that were recorded before are restored without a transaction.
SET LOCAL idle_in_transaction_session_timeout = 60000

-- name: WAIT_FOR_TURNS
SELECT pg_advisory_xact_lock(turn)
FROM (SELECT {TURN} AS turn
      FROM UNNEST($1::text[], $2::integer[]) WITH ORDINALITY AS wanted (of_item, number, place)
      ORDER BY place OFFSET 0) AS turns

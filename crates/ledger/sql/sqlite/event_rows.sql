-- apart

-- name: ADD
-- SQLite binds an empty list of bytes as NULL.
INSERT INTO events (at, item, kind, data, orders)
SELECT ?2, value ->> 0, value ->> 1, value ->> 2,
       coalesce(substr(?3, value ->> 3, value ->> 4), x'')
FROM json_each(?1)

-- name: REMOVE
DELETE FROM events
WHERE seq IN (SELECT seq FROM events ORDER BY seq LIMIT ?1) AND at < ?2
  AND NOT EXISTS (
      SELECT 1 FROM webhooks WHERE disabled_at IS NULL AND webhooks.seq < events.seq)
  AND NOT EXISTS (SELECT 1 FROM sinks WHERE served_at > ?3 AND sinks.seq < events.seq)
RETURNING seq

-- name: NOTE_REMOVED
UPDATE events_removed SET seq = max(seq, ?1)

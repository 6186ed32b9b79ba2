-- name: IS_OF_ANOTHER
SELECT 1 FROM sinks WHERE name = ?1 AND publisher <> ?2 AND leased_until >= {now_ms!}

-- name: LEASE
-- All processes that open the file are on one machine, so leases go by its clock. ?3: milliseconds.
INSERT INTO sinks (name, seq, publisher, leased_until, served_at)
SELECT ?1, seq, ?2, {now_ms!} + ?3, {now_ms!} FROM events_removed WHERE true
ON CONFLICT (name) DO UPDATE
SET publisher = excluded.publisher, leased_until = excluded.leased_until,
    served_at = excluded.served_at
WHERE sinks.publisher IS NULL OR sinks.publisher = ?2 OR sinks.leased_until < {now_ms!}
RETURNING 0, seq

-- name: RELEASE
UPDATE sinks SET publisher = NULL, leased_until = NULL WHERE name = ?1 AND publisher = ?2

-- name: ADVANCE
-- ?3: seq. Events have no xid here, so the value behind it is not read.
UPDATE sinks SET seq = ?3 WHERE name = ?1 AND publisher = ?2 AND seq <= ?3

-- name: SINKS
SELECT name, 0, seq, served_at FROM sinks ORDER BY name

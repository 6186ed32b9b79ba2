-- name: IS_OF_ANOTHER
-- Only where there is one writer at a time is this asked before a lease.
SELECT 1::bigint FROM sinks WHERE name = $1 AND publisher <> $2 AND leased_until >= now()

-- name: LEASE
-- Leases go by the database's clock. $3: milliseconds.
INSERT INTO sinks AS known (name, xid, seq, publisher, leased_until, served_at)
SELECT $1, xid, seq, $2, now() + $3 * interval '1 millisecond', now() FROM events_removed
ON CONFLICT (name) DO UPDATE
SET publisher = excluded.publisher, leased_until = excluded.leased_until,
    served_at = excluded.served_at
WHERE known.publisher IS NULL OR known.publisher = $2 OR known.leased_until < now()
RETURNING xid::text::bigint, seq

-- name: RELEASE
UPDATE sinks SET publisher = NULL, leased_until = NULL WHERE name = $1 AND publisher = $2

-- name: ADVANCE
-- $3: seq. $4: xid.
UPDATE sinks SET xid = $4::text::xid8, seq = $3
WHERE name = $1 AND publisher = $2 AND (xid, seq) <= ($4::text::xid8, $3)

-- name: SINKS
SELECT name, xid::text::bigint, seq, (extract(epoch FROM served_at) * 1000)::bigint
FROM sinks ORDER BY name

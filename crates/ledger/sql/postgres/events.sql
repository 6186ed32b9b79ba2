-- name: READ
-- A transaction below `pg_snapshot_xmin` of the statement's snapshot has ended, and the snapshot
-- has its rows. No transaction can get such a number any more.
SELECT xid::text::bigint AS xid, seq, (extract(epoch FROM at) * 1000)::bigint AS at_ms, item, kind,
       orders, data::text AS data
FROM events
WHERE (xid, seq) > ($3::text::xid8, $1) AND xid < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY xid, seq LIMIT $2

-- name: CHECK_CURSOR
SELECT $2::text::xid8 > pg_snapshot_xmax(pg_current_snapshot())
         OR $1 > (SELECT last_value FROM events_seq_seq),
       xid::text::bigint, seq
FROM events_removed

-- name: END_CURSOR
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, 0::bigint

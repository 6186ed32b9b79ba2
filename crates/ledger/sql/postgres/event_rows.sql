-- apart

-- name: ADD
{insert_events!}

-- name: REMOVE
-- Readers are asked about the oldest events alone: behind the position of the slowest one, no event
-- goes, and the search for one that does would read all.
WITH old AS (
    SELECT xid, seq FROM events
    WHERE xid < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY xid, seq LIMIT $2),
gone AS (
    DELETE FROM events USING old WHERE events.xid = old.xid AND events.seq = old.seq
      AND events.at < to_timestamp($1::double precision / 1000)
      AND NOT EXISTS (
          SELECT FROM webhooks WHERE disabled_at IS NULL
            AND (webhooks.xid, webhooks.seq) < (events.xid, events.seq))
      AND NOT EXISTS (
          SELECT FROM sinks WHERE served_at > now() - $3 * interval '1 millisecond'
            AND (sinks.xid, sinks.seq) < (events.xid, events.seq))
    RETURNING events.xid, events.seq),
newest AS (SELECT xid, seq FROM gone ORDER BY xid DESC, seq DESC LIMIT 1),
noted AS (
    UPDATE events_removed SET xid = newest.xid, seq = newest.seq FROM newest
    WHERE (events_removed.xid, events_removed.seq) < (newest.xid, newest.seq))
SELECT xid FROM gone

-- apart

-- fragment: EVENT_GOES
-- $1: the item. $2: milliseconds since a sink was served after which it is not in use. $3:
-- milliseconds for which an event is new.
events.item = $1 AND events.at < now() - $3 * interval '1 millisecond'
AND NOT EXISTS (
    SELECT FROM webhooks
    WHERE disabled_at IS NULL AND (webhooks.xid, webhooks.seq) < (events.xid, events.seq))
AND NOT EXISTS (
    SELECT FROM sinks
    WHERE served_at > now() - $2 * interval '1 millisecond'
      AND (sinks.xid, sinks.seq) < (events.xid, events.seq))

-- name: EVENTS_PAGE
-- The events of other items are read as well, without their documents: there is no index by item, which
-- every order would have to pay for. Each comes with its time: behind those of the sale, the pages end.
WITH events AS (
    SELECT * FROM events
    WHERE (xid, seq) > ($4::text::xid8, $5) AND xid < pg_snapshot_xmin(pg_current_snapshot())
    ORDER BY xid, seq LIMIT $6)
SELECT xid::text::bigint, seq, (extract(epoch FROM at) * 1000)::bigint,
       CASE WHEN {EVENT_GOES} THEN to_jsonb(events)::text END
FROM events ORDER BY xid, seq

-- name: LOCK_EVENTS
SELECT events.xid::text::bigint, events.seq, to_jsonb(events)::text
FROM UNNEST($4::text[], $5::bigint[]) AS wanted (xid, seq)
JOIN events ON events.xid = wanted.xid::xid8 AND events.seq = wanted.seq
WHERE {EVENT_GOES} FOR UPDATE OF events

-- name: DELETE_EVENTS
DELETE FROM events USING UNNEST($1::text[], $2::bigint[]) AS gone (xid, seq)
WHERE events.xid = gone.xid::xid8 AND events.seq = gone.seq

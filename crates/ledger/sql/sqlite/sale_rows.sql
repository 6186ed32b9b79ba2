-- apart

-- `{}` is the document of an event, which follows the schema: `sale_rows.rs` puts it there.

-- fragment: EVENT_GOES
-- ?1: the item. ?2: the time at which a sink that is in use was served last, at the earliest. ?3:
-- the time before which an event is no longer new.
events.item = ?1 AND events.at < ?3
AND NOT EXISTS (
    SELECT 1 FROM webhooks WHERE disabled_at IS NULL AND webhooks.seq < events.seq)
AND NOT EXISTS (SELECT 1 FROM sinks WHERE served_at > ?2 AND sinks.seq < events.seq)

-- name: EVENTS_PAGE
-- The events of other items are read as well, without their documents: there is no index by item, which
-- every order would have to pay for. Each comes with its time: behind those of the sale, the pages end.
SELECT seq, at, CASE WHEN {EVENT_GOES} THEN {} END FROM events WHERE seq > ?4 ORDER BY seq LIMIT ?5

-- name: LOCK_EVENTS
SELECT seq, {} FROM events WHERE seq IN (SELECT value FROM json_each(?4)) AND {EVENT_GOES}

-- name: DELETE_EVENTS
DELETE FROM events WHERE seq IN (SELECT value FROM json_each(?1))

-- name: COLUMNS
-- Of a table.
SELECT name, type FROM pragma_table_info(?1) ORDER BY cid

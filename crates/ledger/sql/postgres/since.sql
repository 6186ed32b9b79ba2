-- name: PLACE
-- $1: item. $2: kinds. $3: most events, and one more.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
       ARRAY(SELECT seq FROM events WHERE xid >= pg_snapshot_xmin(pg_current_snapshot())
             AND item = $1 AND kind = ANY($2) LIMIT $3)

-- name: TOLD
-- $1: position. $2: item. $3: kinds. $4: most events. $5: events that were seen.
SELECT count(*),
       coalesce(sum(octet_length(orders)) FILTER
           (WHERE item = $2 AND kind = ANY($3) AND seq <> ALL($5)), 0)::bigint / 16,
       (SELECT removed.xid >= $1::text::xid8 FROM events_removed AS removed),
       $1::text::xid8 > pg_snapshot_xmax(pg_current_snapshot())
FROM (SELECT item, kind, orders, seq FROM events WHERE xid >= $1::text::xid8
      ORDER BY xid, seq LIMIT $4) AS told

-- name: CHANGED
-- $1: position. $2: item. $3: kinds. $4: events that were seen.
SELECT kind, orders FROM events
WHERE xid >= $1::text::xid8 AND item = $2 AND kind = ANY($3) AND seq <> ALL($4)
ORDER BY xid, seq

-- name: LOOK_UP
SELECT before, segment::bigint, state, attempt > 0, sum(quantity)::bigint
FROM UNNEST($1::uuid[], $2::text[]) AS changed (order_id, before)
LEFT JOIN orders ON orders.id = order_id AND orders.item = $3
GROUP BY 1, 2, 3, 4

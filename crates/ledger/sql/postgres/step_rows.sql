-- apart

-- name: WAIT_BRIEFLY
-- Transactions that are not stuck have the rows for some milliseconds.
SET LOCAL lock_timeout = '500ms'

-- name: LOCK_SEGMENTS
-- In byte order, like the sorted keys and like every other transaction that locks segments. The
-- collation of the database could be a different one.
SELECT item, segment::bigint, archived
FROM UNNEST($1::text[], $2::integer[]) WITH ORDINALITY AS wanted (of_item, number, place)
JOIN segments ON item = of_item AND segment = number ORDER BY place FOR UPDATE OF segments

-- name: BIND_PAYMENTS
-- A payment that has a row is locked and updated to what it is. So a return that is noted at the
-- same time comes before this or after it, and each sees what the other did.
INSERT INTO payments (id, order_id)
SELECT payment, order_id
FROM UNNEST($1::text[], $2::uuid[]) AS wanted (payment, order_id)
ORDER BY payment COLLATE "C"
ON CONFLICT (id) DO UPDATE SET order_id = payments.order_id
RETURNING id, order_id, returned_at IS NOT NULL AS is_returned

-- name: COUNT
-- With the events, which need no round trip.
WITH happened AS ({insert_events!})
UPDATE segments AS s
SET available = s.available + moved.free, held = s.held + moved.held,
    confirmed = s.confirmed + moved.confirmed, "returning" = s."returning" + moved.back,
    version = s.version + 1
FROM UNNEST($8::text[], $9::integer[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[])
    AS moved (item, segment, held, confirmed, back, free)
WHERE s.item = moved.item AND s.segment = moved.segment

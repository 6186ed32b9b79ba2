-- fragment: LIVE_ITEMS
-- The columns of an item in the list that workers keep.
SELECT {item_columns!}, (extract(epoch FROM closed_at) * 1000)::bigint AS closed_ms, archive_by,
       keys_removed_at IS NULL AS is_live,
       (SELECT item_changes.version FROM item_changes
        WHERE item_changes.item = items.id) AS change
FROM items

-- name: CHANGED
-- The items whose last change has this version or a higher one. With `IN` it would read all items.
{LIVE_ITEMS} WHERE id = ANY(ARRAY(
    SELECT item_changes.item FROM item_changes WHERE item_changes.version >= $1))

-- name: LIVE
-- Items that have keys in Redis.
{LIVE_ITEMS} WHERE keys_removed_at IS NULL

-- name: AT_WORK
SELECT id FROM items
WHERE keys_removed_at IS NULL AND (state <> 'closed' OR (
    EXISTS (SELECT FROM segments
            WHERE segments.item = items.id AND segments.held + segments."returning" > 0)
    OR EXISTS (SELECT FROM transfers
               WHERE transfers.item = items.id AND transfers.state <> 'done')))

-- name: HAS_OPEN_WORK
SELECT (
    EXISTS (SELECT FROM segments
            WHERE segments.item = $1 AND segments.held + segments."returning" > 0)
    OR EXISTS (SELECT FROM transfers
               WHERE transfers.item = $1 AND transfers.state <> 'done'))

-- name: CHECKPOINTS
SELECT item, segment::bigint, checkpoint FROM segments WHERE NOT archived

-- name: CHECKPOINTS_OF
SELECT item, segment::bigint, checkpoint FROM segments WHERE item = ANY($1) AND NOT archived

-- name: UNRECORDED
SELECT item, segment::bigint FROM segments WHERE checkpoint IS NULL AND NOT archived

-- name: REJECT
UPDATE orders SET state = 'rejected' WHERE id = ANY($1)

-- name: LIMITS_OF
SELECT id, limit_per_buyer, limit_before, lowered_ms, is_without_spillover
FROM limits_of($1::text[], $2::boolean[])

-- name: MARK_SPILLOVER
DELETE FROM items_without_spillover WHERE item = ANY($1)

-- name: USAGE_OF
SELECT place - 1, sum(quantity)::bigint
FROM UNNEST($1::text[], $2::text[], $3::uuid[], $4::uuid[])
    WITH ORDINALITY AS asked (of_item, of_buyer, first, last, place)
JOIN orders ON id BETWEEN first AND last AND item = of_item AND buyer = of_buyer
    AND state IN ('held', 'confirmed')
GROUP BY place

-- name: LOCK_ORDERS
SELECT id, state, attempt::bigint, segment::bigint, quantity,
       (extract(epoch FROM expires_at) * 1000)::bigint AS expires_ms
FROM orders WHERE id = ANY($1) ORDER BY id FOR UPDATE

-- name: REACQUIRE
UPDATE orders AS o
SET state = new.state, attempt = new.attempt, segment = new.segment,
    expires_at = to_timestamp(new.expires_ms::double precision / 1000), version = o.version + 1
FROM UNNEST($1::uuid[], $2::text[], $3::smallint[], $4::integer[], $5::bigint[])
    AS new (id, state, attempt, segment, expires_ms)
WHERE o.id = new.id

-- name: TAKE_RETURNS
-- No index serves this comparison of items. With `=`, the statistics of a table that is mostly empty
-- suggest to look through all returns of the item for each of them.
DELETE FROM returns AS r
USING UNNEST($1::uuid[], $2::text[], $3::integer[]) AS back (id, item, segment)
WHERE r.id = back.id AND r.item IS NOT DISTINCT FROM back.item AND r.segment = back.segment
RETURNING r.id, r.item, r.segment::bigint, r.buyer, r.quantity

-- name: ADD_RETURNS
INSERT INTO returns (id, item, segment, buyer, quantity, since)
SELECT id, item, segment, buyer, quantity, to_timestamp($6::double precision / 1000)
FROM UNNEST($1::uuid[], $2::text[], $3::integer[], $4::text[], $5::bigint[])
    AS new (id, item, segment, buyer, quantity)

-- name: LOCK_TRANSFERS
SELECT {transfer_columns!} FROM transfers WHERE id = ANY($1) ORDER BY id FOR UPDATE

-- name: MOVE_TRANSFERS
UPDATE transfers AS t SET state = new.state, moved = new.moved
FROM UNNEST($1::uuid[], $2::text[], $3::bigint[]) AS new (id, state, moved) WHERE t.id = new.id

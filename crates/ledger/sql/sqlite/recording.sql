-- fragment: LIVE_ITEMS
-- The columns of an item in the list that workers keep.
SELECT {item_columns!}, closed_at AS closed_ms, archive_by,
       keys_removed_at IS NULL AS is_live,
       (SELECT item_changes.version FROM item_changes
        WHERE item_changes.item = items.id) AS change
FROM items

-- name: CHANGED
-- The items whose last change has this version or a higher one.
{LIVE_ITEMS} WHERE id IN (
    SELECT item_changes.item FROM item_changes WHERE item_changes.version >= ?1)

-- name: LIVE
-- Items that have keys in Redis.
{LIVE_ITEMS} WHERE keys_removed_at IS NULL

-- name: AT_WORK
SELECT id FROM items
WHERE keys_removed_at IS NULL AND (state <> 'closed' OR (
    EXISTS (SELECT 1 FROM segments
            WHERE segments.item = items.id AND segments.held + segments."returning" > 0)
    OR EXISTS (SELECT 1 FROM transfers
               WHERE transfers.item = items.id AND transfers.state <> 'done')))

-- name: HAS_OPEN_WORK
SELECT (
    EXISTS (SELECT 1 FROM segments
            WHERE segments.item = ?1 AND segments.held + segments."returning" > 0)
    OR EXISTS (SELECT 1 FROM transfers
               WHERE transfers.item = ?1 AND transfers.state <> 'done'))

-- name: CHECKPOINTS
SELECT item, segment, checkpoint FROM segments WHERE NOT archived

-- name: CHECKPOINTS_OF
SELECT item, segment, checkpoint FROM segments
WHERE item IN (SELECT value FROM json_each(?1)) AND NOT archived

-- name: UNRECORDED
SELECT item, segment FROM segments WHERE checkpoint IS NULL AND NOT archived

-- name: REJECT
UPDATE orders SET state = 'rejected' WHERE id IN (SELECT unhex(value) FROM json_each(?1))

-- name: LIMITS_OF
-- The transaction already holds the write lock, which covers all rows. So the value behind the
-- items, which says how to lock each, is not read.
SELECT id, limit_per_buyer, limit_before, limit_lowered_at AS lowered_ms,
       EXISTS (SELECT 1 FROM items_without_spillover
               WHERE items_without_spillover.item = items.id) AS is_without_spillover
FROM items
WHERE id IN (SELECT value FROM json_each(?1))
  AND (limit_per_buyer IS NOT NULL OR limit_before IS NOT NULL)

-- name: MARK_SPILLOVER
DELETE FROM items_without_spillover WHERE item IN (SELECT value FROM json_each(?1))

-- name: USAGE_OF
-- CROSS JOIN fixes the join order: for each query its range of the index, and never the reverse.
SELECT asked.key, sum(quantity)
FROM json_each(?1) AS asked CROSS JOIN orders
    ON orders.id BETWEEN unhex(asked.value ->> 2) AND unhex(asked.value ->> 3)
    AND orders.item = asked.value ->> 0 AND orders.buyer = asked.value ->> 1
    AND orders.state IN ('held', 'confirmed')
GROUP BY asked.key

-- name: LOCK_ORDERS
SELECT id, state, attempt, segment, quantity, expires_at AS expires_ms FROM orders
WHERE id IN (SELECT unhex(value) FROM json_each(?1))

-- name: REACQUIRE
UPDATE orders
SET state = new.value ->> 1, attempt = new.value ->> 2, segment = new.value ->> 3,
    expires_at = new.value ->> 4, version = version + 1
FROM json_each(?1) AS new WHERE orders.id = unhex(new.value ->> 0)

-- name: TAKE_RETURNS
DELETE FROM returns
WHERE (id, item, segment) IN (
    SELECT unhex(value ->> 0), value ->> 1, value ->> 2 FROM json_each(?1))
RETURNING id, item, segment, buyer, quantity

-- name: ADD_RETURNS
INSERT INTO returns (id, item, segment, buyer, quantity, since)
SELECT unhex(value ->> 0), value ->> 1, value ->> 2, value ->> 3, value ->> 4, ?2
FROM json_each(?1)

-- name: LOCK_TRANSFERS
SELECT {transfer_columns!} FROM transfers WHERE id IN (SELECT unhex(value) FROM json_each(?1))

-- name: MOVE_TRANSFERS
UPDATE transfers SET state = new.value ->> 1, moved = new.value ->> 2
FROM json_each(?1) AS new WHERE transfers.id = unhex(new.value ->> 0)

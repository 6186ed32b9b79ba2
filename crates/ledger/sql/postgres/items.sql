-- name: AS_CREATED
SELECT as_created::text FROM items WHERE id = $1

-- name: INSERT_ITEM
INSERT INTO items (id, tag, title, stock, price, currency, limit_per_buyer, segments, opens_at,
                   closes_at, hold_seconds, durability, state, epoch, as_created,
                   max_hold_seconds, max_per_order, waves)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, to_timestamp($9::double precision / 1000),
        to_timestamp($10::double precision / 1000), $11, $12, $13, $14, $15::jsonb,
        $16, $17, $18::jsonb)
ON CONFLICT (id) DO NOTHING

-- name: MARK_WITHOUT_SPILLOVER
INSERT INTO items_without_spillover (item) VALUES ($1)

-- name: CLAIM
UPDATE items SET fence = $2 WHERE id = $1 AND fence <= $2

-- name: FENCE
SELECT fence FROM items WHERE id = $1

-- name: LOCK_ITEM
-- NO KEY allows concurrent inserts of rows that refer to the item. A transaction that has
-- inserted such a row may still wait for this lock.
SELECT {item_columns!}, fence FROM items WHERE id = $1 FOR NO KEY UPDATE

-- name: WRITE_ITEM
UPDATE items SET
    stock = $3, limit_per_buyer = $4, opens_at = to_timestamp($5::double precision / 1000),
    closes_at = to_timestamp($6::double precision / 1000), state = $7, epoch = $8, version = $9,
    limit_before = CASE
        WHEN coalesce($4, $10) >= coalesce(limit_per_buyer, $10) THEN limit_before
        WHEN limit_lowered_at > to_timestamp($11::double precision / 1000)
            THEN greatest(limit_before, coalesce(limit_per_buyer, $10))
        ELSE coalesce(limit_per_buyer, $10) END,
    limit_lowered_at = CASE
        WHEN coalesce($4, $10) >= coalesce(limit_per_buyer, $10) THEN limit_lowered_at
        ELSE to_timestamp($12::double precision / 1000) END,
    closed_at = CASE
        WHEN $7 <> 'closed' THEN NULL
        WHEN state = 'closed' THEN closed_at
        ELSE to_timestamp($12::double precision / 1000) END,
    archive_by = CASE WHEN $7 = 'closed' THEN archive_by END,
    waves = $13::jsonb, new_price = $14
WHERE id = $1 AND version = $2 AND archived_at IS NULL

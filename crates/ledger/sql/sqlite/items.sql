-- name: AS_CREATED
SELECT as_created FROM items WHERE id = ?1

-- name: INSERT_ITEM
INSERT INTO items (id, tag, title, stock, price, currency, limit_per_buyer, segments, opens_at,
                   closes_at, hold_seconds, durability, state, epoch, as_created,
                   max_hold_seconds, max_per_order, waves)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9,
        ?10, ?11, ?12, ?13, ?14, ?15,
        ?16, ?17, ?18)
ON CONFLICT (id) DO NOTHING

-- name: MARK_WITHOUT_SPILLOVER
INSERT INTO items_without_spillover (item) VALUES (?1)

-- name: CLAIM
UPDATE items SET fence = ?2 WHERE id = ?1 AND fence <= ?2

-- name: FENCE
SELECT fence FROM items WHERE id = ?1

-- name: LOCK_ITEM
-- The transaction already holds the write lock, which covers all rows.
SELECT {item_columns!}, fence FROM items WHERE id = ?1

-- name: WRITE_ITEM
UPDATE items SET
    stock = ?3, limit_per_buyer = ?4, opens_at = ?5,
    closes_at = ?6, state = ?7, epoch = ?8, version = ?9,
    limit_before = CASE
        WHEN coalesce(?4, ?10) >= coalesce(limit_per_buyer, ?10) THEN limit_before
        WHEN limit_lowered_at > ?11
            THEN max(limit_before, coalesce(limit_per_buyer, ?10))
        ELSE coalesce(limit_per_buyer, ?10) END,
    limit_lowered_at = CASE
        WHEN coalesce(?4, ?10) >= coalesce(limit_per_buyer, ?10) THEN limit_lowered_at
        ELSE ?12 END,
    closed_at = CASE
        WHEN ?7 <> 'closed' THEN NULL
        WHEN state = 'closed' THEN closed_at
        ELSE ?12 END,
    archive_by = CASE WHEN ?7 = 'closed' THEN archive_by END,
    waves = ?13, new_price = ?14
WHERE id = ?1 AND version = ?2 AND archived_at IS NULL

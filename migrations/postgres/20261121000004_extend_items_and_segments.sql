-- The item as it was created. A repeated request to create the item is compared with it, because
-- stock, limit and window can change later.
ALTER TABLE items ADD COLUMN as_created jsonb;

-- Before this migration only the state could change: the other columns still have the values of the
-- creation.
UPDATE items SET as_created = jsonb_build_object(
    'title', title,
    'stock', stock,
    'price_cents', price_cents,
    'currency', currency,
    'limit_per_buyer', limit_per_buyer,
    'segments', segments,
    'opens_ms', (extract(epoch FROM opens_at) * 1000)::bigint,
    'closes_ms', (extract(epoch FROM closes_at) * 1000)::bigint,
    'hold_seconds', hold_seconds,
    'durability', durability
);

ALTER TABLE items
    ALTER COLUMN as_created SET NOT NULL,
    DROP CONSTRAINT items_durability_known,
    ADD CONSTRAINT items_durability_known CHECK (durability IN ('recorded', 'replicated', 'accepted'));

-- Units of ended orders until their segment has released them: no order has them, and they cannot
-- be sold yet.
ALTER TABLE segments
    ADD COLUMN "returning" bigint NOT NULL DEFAULT 0,
    ADD CONSTRAINT segments_returning_not_negative CHECK ("returning" >= 0),
    DROP CONSTRAINT segments_units_accounted_for,
    ADD CONSTRAINT segments_units_accounted_for CHECK (available + held + confirmed + "returning" = allocated);

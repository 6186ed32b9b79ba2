-- What a repeated request to create an item is compared with: stock, limit and window can change later.
ALTER TABLE items ADD COLUMN as_created jsonb;

-- Until now only the state could change.
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

-- Units of orders that have ended, until their segment has taken them back: they are nobody's, and cannot be sold yet.
ALTER TABLE segments
    ADD COLUMN "returning" bigint NOT NULL DEFAULT 0,
    ADD CONSTRAINT segments_returning_not_negative CHECK ("returning" >= 0),
    DROP CONSTRAINT segments_units_accounted_for,
    ADD CONSTRAINT segments_units_accounted_for CHECK (available + held + confirmed + "returning" = allocated);

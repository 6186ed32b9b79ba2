-- `max_hold_seconds`: how long a hold can get by extension. `max_per_order`: units that one order may
-- ask for. `waves`: units to add at fixed times, and which of them were added. They are part of the
-- row, so that the update that adds a wave's units to the stock also notes that they were added.
ALTER TABLE items
    ADD COLUMN max_hold_seconds bigint,
    ADD COLUMN max_per_order bigint,
    ADD COLUMN waves jsonb NOT NULL DEFAULT '[]',
    ADD CONSTRAINT items_max_hold_not_below_hold CHECK (max_hold_seconds >= hold_seconds),
    ADD CONSTRAINT items_max_per_order_positive CHECK (max_per_order > 0);

-- What a request that names none of them creates.
UPDATE items SET max_hold_seconds = greatest(hold_seconds, 3600);

UPDATE items SET as_created = as_created || jsonb_build_object(
    'max_hold_seconds', max_hold_seconds, 'max_per_order', NULL, 'waves', '[]'::jsonb);

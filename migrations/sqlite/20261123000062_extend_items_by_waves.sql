-- `max_hold_seconds`: how long a hold can get by extension. `max_per_order`: units that one order may
-- ask for. `waves`: units to add at fixed times, and which of them were added. They are part of the
-- row, so that the update that adds a wave's units to the stock also notes that they were added.
ALTER TABLE items ADD COLUMN max_hold_seconds INTEGER
    CONSTRAINT items_max_hold_not_below_hold CHECK (max_hold_seconds >= hold_seconds);
ALTER TABLE items ADD COLUMN max_per_order INTEGER
    CONSTRAINT items_max_per_order_positive CHECK (max_per_order > 0);
ALTER TABLE items ADD COLUMN waves TEXT NOT NULL DEFAULT '[]';

-- What a request that names none of them creates.
UPDATE items SET max_hold_seconds = max(hold_seconds, 3600);

UPDATE items SET as_created = json_set(as_created,
    '$.max_hold_seconds', max_hold_seconds, '$.max_per_order', json('null'), '$.waves', json('[]'));

-- The orders of an archived item can be purged. `purge_by`: who has asked for it. `purged_orders`,
-- `purged_transfers`: rows deleted so far. `purged_at`: when the last one was deleted, in milliseconds
-- since 1970. The item, its segments, its journal and its final audit stay.
ALTER TABLE items ADD COLUMN purge_by TEXT
    CONSTRAINT items_purged_are_archived CHECK (purge_by IS NULL OR archived_at IS NOT NULL);
ALTER TABLE items ADD COLUMN purged_orders INTEGER NOT NULL DEFAULT 0;
ALTER TABLE items ADD COLUMN purged_transfers INTEGER NOT NULL DEFAULT 0;
ALTER TABLE items ADD COLUMN purged_at INTEGER
    CONSTRAINT items_purged_on_request CHECK (purged_at IS NULL OR purge_by IS NOT NULL);

-- The items that reconcilers purge.
CREATE INDEX items_to_purge ON items (id) WHERE purge_by IS NOT NULL AND purged_at IS NULL;

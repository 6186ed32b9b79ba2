-- The end of an item. `closed_at`: since when it is closed. `archive_by`: who has asked a reconciler
-- to archive it. `archived_at`: from then on the ledger alone answers for it; the column `state`
-- stays `closed`. `keys_removed_at`: when its keys were removed from Redis.
ALTER TABLE items
    ADD COLUMN closed_at timestamptz,
    ADD COLUMN archive_by text,
    ADD COLUMN archived_at timestamptz,
    ADD COLUMN keys_removed_at timestamptz,
    ADD CONSTRAINT items_archived_are_closed CHECK (archived_at IS NULL OR state = 'closed'),
    ADD CONSTRAINT items_without_keys_are_archived CHECK (keys_removed_at IS NULL OR archived_at IS NOT NULL);

-- When these were closed is not known. They have been closed since now at the latest.
UPDATE items SET closed_at = now() WHERE state = 'closed';

-- The items that recorders and reconcilers work for.
CREATE INDEX items_live ON items (id) WHERE keys_removed_at IS NULL;

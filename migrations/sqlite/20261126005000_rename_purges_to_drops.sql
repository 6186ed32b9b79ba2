-- One word for one concept: an archived sale is dropped. `drop_by`: who has asked for it.
-- `dropped_orders`, `dropped_transfers`: rows deleted so far. `dropped_at`: when the last one was
-- deleted, in milliseconds since 1970. The item, its segments and its final audit stay as a tombstone.
ALTER TABLE items RENAME COLUMN purge_by TO drop_by;
ALTER TABLE items RENAME COLUMN purged_orders TO dropped_orders;
ALTER TABLE items RENAME COLUMN purged_transfers TO dropped_transfers;
ALTER TABLE items RENAME COLUMN purged_at TO dropped_at;
DROP INDEX items_to_purge;
CREATE INDEX items_to_drop ON items (id) WHERE drop_by IS NOT NULL AND dropped_at IS NULL;

-- The archived items that nothing has asked to drop, by their age. `items` has one row a sale, so the
-- index is built within the transaction.
CREATE INDEX items_archived ON items (archived_at) WHERE archived_at IS NOT NULL AND drop_by IS NULL;

-- The few entries that have the old word.
UPDATE journal SET action = replace(action, 'purge', 'drop')
WHERE item IN (SELECT id FROM items WHERE drop_by IS NOT NULL) AND action IN ('purge_request', 'purge');

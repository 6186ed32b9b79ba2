-- The last change of each item, for workers that keep the list of items and read what has changed.
-- There is one writer at a time, so a process that has read up to a version has seen every change up
-- to it.
CREATE TABLE item_changes (
    item    TEXT    NOT NULL,
    version INTEGER NOT NULL,
    CONSTRAINT item_changes_pkey PRIMARY KEY (item)
) STRICT;

CREATE INDEX item_changes_by_version ON item_changes (version);

INSERT INTO item_changes (item, version) SELECT id, row_number() OVER (ORDER BY id) FROM items;

CREATE TRIGGER items_note_insert AFTER INSERT ON items
BEGIN
    INSERT INTO item_changes (item, version)
    VALUES (NEW.id, (SELECT coalesce(max(version), 0) + 1 FROM item_changes))
    ON CONFLICT (item) DO UPDATE SET version = excluded.version;
END;

-- Without `fence`: every holder of the item's lock writes that.
CREATE TRIGGER items_note_update
AFTER UPDATE OF limit_per_buyer, opens_at, closes_at, state, epoch, waves, closed_at, archive_by, archived_at, keys_removed_at ON items
BEGIN
    INSERT INTO item_changes (item, version)
    VALUES (NEW.id, (SELECT coalesce(max(version), 0) + 1 FROM item_changes))
    ON CONFLICT (item) DO UPDATE SET version = excluded.version;
END;

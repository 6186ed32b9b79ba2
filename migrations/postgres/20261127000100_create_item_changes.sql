-- The last change of each item, for workers that keep the list of items and read what has changed.
-- A process that has read up to a version has seen every change up to it: the deferred trigger numbers
-- the changes at the end of their transactions, one transaction after the other.
CREATE SEQUENCE item_changes_version;

CREATE TABLE item_changes (
    item    text   NOT NULL,
    version bigint NOT NULL,
    CONSTRAINT item_changes_pkey PRIMARY KEY (item)
);

CREATE INDEX item_changes_by_version ON item_changes (version);

CREATE FUNCTION note_item_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Held until the change can be seen.
    PERFORM pg_advisory_xact_lock(hashtextextended('stockade item changes', 0));
    INSERT INTO item_changes (item, version) VALUES (NEW.id, nextval('item_changes_version'))
    ON CONFLICT (item) DO UPDATE SET version = excluded.version;
    RETURN NULL;
END
$$;

INSERT INTO item_changes (item, version) SELECT id, nextval('item_changes_version') FROM items;

-- Without `fence`: every holder of the item's lock writes that.
CREATE CONSTRAINT TRIGGER items_note_change
AFTER INSERT OR UPDATE OF limit_per_buyer, opens_at, closes_at, state, epoch, waves, closed_at, archive_by, archived_at, keys_removed_at
ON items DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_item_change();

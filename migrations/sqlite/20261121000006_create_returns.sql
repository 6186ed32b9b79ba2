-- Pending returns: the order has ended, and the ledger has not recorded yet that its segment has
-- released the units. The units are counted in the segment's `returning`. The id is the one under
-- which the segment knows the units. `since` is in milliseconds since 1970.
CREATE TABLE returns (
    id       BLOB    NOT NULL,
    item     TEXT    NOT NULL,
    segment  INTEGER NOT NULL,
    buyer    TEXT    NOT NULL,
    quantity INTEGER NOT NULL,
    since    INTEGER NOT NULL,
    CONSTRAINT returns_pkey PRIMARY KEY (id),
    CONSTRAINT returns_id_is_a_uuid CHECK (length(id) = 16),
    CONSTRAINT returns_quantity_positive CHECK (quantity > 0)
) STRICT, WITHOUT ROWID;

-- Pending returns, oldest first, of all items and of one.
CREATE INDEX returns_since ON returns (since);
CREATE INDEX returns_of_item ON returns (item, since);

-- Every order that a segment gave units to. The id is a hash of (item, buyer, idempotency key), so
-- the primary key makes a buyer's key identify one order of an item. `expires_at` is in
-- milliseconds since 1970.
CREATE TABLE orders (
    id         BLOB    NOT NULL,
    item       TEXT    NOT NULL,
    segment    INTEGER NOT NULL,
    buyer      TEXT    NOT NULL,
    quantity   INTEGER NOT NULL,
    state      TEXT    NOT NULL,
    expires_at INTEGER NOT NULL,
    version    INTEGER NOT NULL DEFAULT 1,
    CONSTRAINT orders_pkey PRIMARY KEY (id),
    CONSTRAINT orders_id_is_a_uuid CHECK (length(id) = 16),
    CONSTRAINT orders_quantity_positive CHECK (quantity > 0),
    CONSTRAINT orders_state_known CHECK (state IN ('held', 'rejected'))
) STRICT, WITHOUT ROWID;

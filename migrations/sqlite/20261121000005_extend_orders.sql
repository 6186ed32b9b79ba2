-- An order goes on after it was held. `attempt` counts how often its units were taken anew after they had been given back;
-- `payment` is what confirmed it, or what is to be given back (`refund_due`).
--
-- SQLite changes a constraint by making the table anew.
CREATE TABLE orders_extended (
    id         BLOB    NOT NULL,
    item       TEXT    NOT NULL,
    segment    INTEGER NOT NULL,
    buyer      TEXT    NOT NULL,
    quantity   INTEGER NOT NULL,
    state      TEXT    NOT NULL,
    expires_at INTEGER NOT NULL,
    attempt    INTEGER NOT NULL DEFAULT 0,
    payment    TEXT,
    version    INTEGER NOT NULL DEFAULT 1,
    CONSTRAINT orders_pkey PRIMARY KEY (id),
    CONSTRAINT orders_id_is_a_uuid CHECK (length(id) = 16),
    CONSTRAINT orders_quantity_positive CHECK (quantity > 0),
    CONSTRAINT orders_attempt_known CHECK (attempt BETWEEN 0 AND 7),
    CONSTRAINT orders_state_known
        CHECK (state IN ('held', 'confirmed', 'cancelled', 'expired', 'refund_due', 'refunded', 'rejected'))
) STRICT, WITHOUT ROWID;

INSERT INTO orders_extended (id, item, segment, buyer, quantity, state, expires_at, version)
SELECT id, item, segment, buyer, quantity, state, expires_at, version
FROM orders;

DROP TABLE orders;
ALTER TABLE orders_extended RENAME TO orders;

-- Whose hold is over. An order leaves it with the state `held`, so it stays as small as what is open.
CREATE INDEX orders_due ON orders (expires_at) WHERE state = 'held';

-- The life of an order after it was held. `attempt` counts how many times its units were reacquired
-- after a release. `payment` is the payment that confirmed it, or that must be refunded
-- (`refund_due`).
--
-- SQLite changes a constraint by creating the table again.
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

-- Held orders by deadline. An order leaves the index with the state `held`, so the index stays as
-- small as the number of open orders.
CREATE INDEX orders_due ON orders (expires_at) WHERE state = 'held';

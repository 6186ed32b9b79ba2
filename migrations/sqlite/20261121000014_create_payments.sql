-- The order that each payment was reported for first. A payment pays one order only. `orders` cannot
-- hold this constraint: an order keeps its payment when it is refunded, and its partitions are
-- dropped one day.
CREATE TABLE payments (
    id       TEXT NOT NULL,
    order_id BLOB NOT NULL,
    CONSTRAINT payments_pkey PRIMARY KEY (id)
) STRICT, WITHOUT ROWID;

INSERT INTO payments (id, order_id)
SELECT payment, id FROM orders WHERE payment IS NOT NULL
ON CONFLICT (id) DO NOTHING;

-- Pending returns: the order has ended, and the ledger has not recorded yet that its segment has
-- released the units. The units are counted in the segment's `returning`. The id is the one under
-- which the segment knows the units. No foreign key, as for orders.
CREATE TABLE returns (
    id       uuid        NOT NULL,
    item     text        NOT NULL,
    segment  integer     NOT NULL,
    buyer    text        NOT NULL,
    quantity bigint      NOT NULL,
    since    timestamptz NOT NULL,
    CONSTRAINT returns_pkey PRIMARY KEY (id),
    CONSTRAINT returns_quantity_positive CHECK (quantity > 0)
);

-- Pending returns, oldest first, of all items and of one.
CREATE INDEX returns_since ON returns (since);
CREATE INDEX returns_of_item ON returns (item, since);

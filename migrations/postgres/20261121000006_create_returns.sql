-- Returns that are pending: the order has ended, and its segment is still to be told, or has been and its entry is not recorded yet. The units are in
-- the segment's `returning`. The id is the one under which the segment knows the units. No foreign key, as for orders.
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

-- Those that nobody has seen to, oldest first, of all items and of one.
CREATE INDEX returns_since ON returns (since);
CREATE INDEX returns_of_item ON returns (item, since);

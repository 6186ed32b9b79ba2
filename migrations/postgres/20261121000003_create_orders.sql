-- Every order that a segment gave units to. The id is a hash of (item, buyer, idempotency key), so
-- the primary key makes a buyer's key identify one order of an item. No foreign key: the segment's
-- row is updated in the same transaction, so a lookup for each order would prove nothing.
CREATE TABLE orders (
    id         uuid        NOT NULL,
    item       text        NOT NULL,
    segment    integer     NOT NULL,
    buyer      text        NOT NULL,
    quantity   bigint      NOT NULL,
    state      text        NOT NULL,
    expires_at timestamptz NOT NULL,
    version    bigint      NOT NULL DEFAULT 1,
    CONSTRAINT orders_pkey PRIMARY KEY (id),
    CONSTRAINT orders_quantity_positive CHECK (quantity > 0),
    CONSTRAINT orders_state_known CHECK (state IN ('held', 'rejected'))
);

-- What the orders of each item added up to when they were last compared with its rows, and the place of that
-- snapshot among the events. An audit goes on from there, and reads only orders that events behind the place
-- name. `revision` is a hash of the rows, as in `good_audits`.
CREATE TABLE order_sums (
    item     text        NOT NULL,
    at       timestamptz NOT NULL,
    revision bigint      NOT NULL,
    sums     jsonb       NOT NULL,
    CONSTRAINT order_sums_pkey PRIMARY KEY (item),
    CONSTRAINT order_sums_item_fkey FOREIGN KEY (item) REFERENCES items (id)
);

-- The last good audit of each item: reconcilers audit an item again when its rows have changed since, or
-- when the audit is old. `revision` is a hash of the rows that were compared with the orders.
CREATE TABLE good_audits (
    item     text        NOT NULL,
    at       timestamptz NOT NULL,
    revision bigint      NOT NULL,
    CONSTRAINT good_audits_pkey PRIMARY KEY (item),
    CONSTRAINT good_audits_item_fkey FOREIGN KEY (item) REFERENCES items (id)
);

-- The last full audit of each item that has found a fault in its orders, and when. It stands until one that
-- began afterwards is good. An audit that reads no orders tells of it.
CREATE TABLE failed_audits (
    item       text        NOT NULL,
    at         timestamptz NOT NULL,
    miscounted bigint      NOT NULL,
    oversold   bigint      NOT NULL,
    CONSTRAINT failed_audits_pkey PRIMARY KEY (item),
    CONSTRAINT failed_audits_item_fkey FOREIGN KEY (item) REFERENCES items (id)
);

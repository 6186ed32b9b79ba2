-- The last full audit of each item that has found a fault in its orders, and when. It stands until one that
-- began afterwards is good. An audit that reads no orders tells of it. `at` is in milliseconds since 1970.
CREATE TABLE failed_audits (
    item       TEXT    NOT NULL,
    at         INTEGER NOT NULL,
    miscounted INTEGER NOT NULL,
    oversold   INTEGER NOT NULL,
    CONSTRAINT failed_audits_pkey PRIMARY KEY (item),
    CONSTRAINT failed_audits_item_fkey FOREIGN KEY (item) REFERENCES items (id)
) STRICT, WITHOUT ROWID;

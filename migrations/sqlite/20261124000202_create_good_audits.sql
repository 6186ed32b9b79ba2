-- The last good audit of each item: reconcilers audit an item again when its rows have changed since, or
-- when the audit is old. `revision` is a hash of the rows that were compared with the orders. `at` is in
-- milliseconds since 1970.
CREATE TABLE good_audits (
    item     TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    CONSTRAINT good_audits_pkey PRIMARY KEY (item),
    CONSTRAINT good_audits_item_fkey FOREIGN KEY (item) REFERENCES items (id)
) STRICT, WITHOUT ROWID;

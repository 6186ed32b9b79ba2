-- The last audit of each archived item. It was ok, and nothing has changed between it and the end of
-- the item: the same transaction has written both. `at` is in milliseconds since 1970.
CREATE TABLE final_audits (
    item   TEXT    NOT NULL,
    at     INTEGER NOT NULL,
    actor  TEXT    NOT NULL,
    -- The fencing token of the item's lock.
    token  INTEGER NOT NULL,
    report TEXT    NOT NULL,
    CONSTRAINT final_audits_pkey PRIMARY KEY (item),
    CONSTRAINT final_audits_item_fkey FOREIGN KEY (item) REFERENCES items (id),
    CONSTRAINT final_audits_report_is_json CHECK (json_valid(report))
) STRICT, WITHOUT ROWID;

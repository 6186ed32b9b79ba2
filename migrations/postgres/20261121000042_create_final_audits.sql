-- The last audit of each archived item. It was ok, and nothing has changed between it and the end of
-- the item: the same transaction has written both.
CREATE TABLE final_audits (
    item   text        NOT NULL,
    at     timestamptz NOT NULL,
    actor  text        NOT NULL,
    -- The fencing token of the item's lock.
    token  bigint      NOT NULL,
    report jsonb       NOT NULL,
    CONSTRAINT final_audits_pkey PRIMARY KEY (item),
    CONSTRAINT final_audits_item_fkey FOREIGN KEY (item) REFERENCES items (id)
);

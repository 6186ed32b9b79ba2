-- Who changed what by hand or by repair. Append-only: nothing updates or deletes here.
CREATE TABLE journal (
    id     bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    at     timestamptz NOT NULL,
    item   text        NOT NULL,
    actor  text        NOT NULL,
    action text        NOT NULL,
    -- The fencing token, if it was done under the item's lock.
    token  bigint,
    before jsonb       NOT NULL,
    after  jsonb       NOT NULL,
    CONSTRAINT journal_pkey PRIMARY KEY (id),
    CONSTRAINT journal_item_fkey FOREIGN KEY (item) REFERENCES items (id)
);

CREATE INDEX journal_of_item ON journal (item, id);

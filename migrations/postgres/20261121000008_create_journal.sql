-- Manual changes and repairs, with their author. Append-only: no statement updates or deletes rows.
CREATE TABLE journal (
    id     bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    at     timestamptz NOT NULL,
    item   text        NOT NULL,
    actor  text        NOT NULL,
    action text        NOT NULL,
    -- The fencing token, if the change was made under the item's lock.
    token  bigint,
    before jsonb       NOT NULL,
    after  jsonb       NOT NULL,
    CONSTRAINT journal_pkey PRIMARY KEY (id),
    CONSTRAINT journal_item_fkey FOREIGN KEY (item) REFERENCES items (id)
);

CREATE INDEX journal_of_item ON journal (item, id);

-- Manual changes and repairs, with their author. Append-only: no statement updates or deletes rows.
-- `at` is in milliseconds since 1970.
CREATE TABLE journal (
    id     INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    item   TEXT    NOT NULL,
    actor  TEXT    NOT NULL,
    action TEXT    NOT NULL,
    -- The fencing token, if the change was made under the item's lock.
    token  INTEGER,
    before TEXT    NOT NULL,
    after  TEXT    NOT NULL,
    CONSTRAINT journal_pkey PRIMARY KEY (id AUTOINCREMENT),
    CONSTRAINT journal_item_fkey FOREIGN KEY (item) REFERENCES items (id),
    CONSTRAINT journal_before_is_json CHECK (json_valid(before)),
    CONSTRAINT journal_after_is_json CHECK (json_valid(after))
) STRICT;

CREATE INDEX journal_of_item ON journal (item, id);

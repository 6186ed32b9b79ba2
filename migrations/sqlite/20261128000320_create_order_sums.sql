-- What the orders of each item added up to when they were last compared with its rows, and the place of that
-- snapshot among the events. An audit goes on from there, and reads only orders that events behind the place
-- name. `revision` is a hash of the rows, as in `good_audits`. `at` is in milliseconds since 1970.
CREATE TABLE order_sums (
    item     TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    sums     TEXT    NOT NULL,
    CONSTRAINT order_sums_pkey PRIMARY KEY (item),
    CONSTRAINT order_sums_item_fkey FOREIGN KEY (item) REFERENCES items (id),
    CONSTRAINT order_sums_sums_are_json CHECK (json_valid(sums))
) STRICT, WITHOUT ROWID;

-- What has happened to orders and items, for readers outside: each row is written in the transaction
-- of its change. One row stands for all orders of an item that a transaction moved to one state.
-- There is one writer at a time, so `seq` is the order of commits. `at` is in milliseconds since
-- 1970.
CREATE TABLE events (
    seq    INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    item   TEXT    NOT NULL,
    kind   TEXT    NOT NULL,
    -- The ids, 16 bytes each.
    orders BLOB    NOT NULL,
    data   TEXT    NOT NULL,
    CONSTRAINT events_pkey PRIMARY KEY (seq AUTOINCREMENT),
    CONSTRAINT events_orders_are_ids CHECK (length(orders) % 16 = 0),
    CONSTRAINT events_data_is_json CHECK (json_valid(data))
) STRICT;

-- The position up to which old events were removed, in one row: a reader that is not there yet must
-- learn that it has missed some.
CREATE TABLE events_removed (
    is_only INTEGER NOT NULL DEFAULT 1,
    seq     INTEGER NOT NULL,
    CONSTRAINT events_removed_pkey PRIMARY KEY (is_only),
    CONSTRAINT events_removed_one_row CHECK (is_only = 1)
) STRICT, WITHOUT ROWID;

INSERT INTO events_removed (seq) VALUES (0);

-- What has happened to orders and items, for readers outside: each row is written in the transaction
-- of its change. One row stands for all orders of an item that a transaction moved to one state.
--
-- `seq` is not the order of commits: a transaction that took a lower one may commit later. Readers
-- therefore go by (xid, seq), and only below the oldest transaction that is still running
-- (`pg_snapshot_xmin`): no row can appear there any more.
CREATE TABLE events (
    xid    xid8        NOT NULL DEFAULT pg_current_xact_id(),
    seq    bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    at     timestamptz NOT NULL,
    item   text        NOT NULL,
    kind   text        NOT NULL,
    -- The ids, 16 bytes each: the recorder writes thousands at a time, and an array would cost twice
    -- the time.
    orders bytea       NOT NULL,
    data   jsonb       NOT NULL,
    CONSTRAINT events_pkey PRIMARY KEY (xid, seq),
    CONSTRAINT events_orders_are_ids CHECK (octet_length(orders) % 16 = 0)
);

-- Ids are hashes: compressing them would only take time.
ALTER TABLE events ALTER COLUMN orders SET STORAGE EXTERNAL;

-- The position up to which old events were removed, in one row: a reader that is not there yet must
-- learn that it has missed some.
CREATE TABLE events_removed (
    is_only boolean NOT NULL DEFAULT true,
    xid     xid8    NOT NULL,
    seq     bigint  NOT NULL,
    CONSTRAINT events_removed_pkey PRIMARY KEY (is_only),
    CONSTRAINT events_removed_one_row CHECK (is_only)
);

INSERT INTO events_removed (xid, seq) VALUES ('0', 0);

-- Each segment, replayed up to its checkpoint.
CREATE TABLE segments (
    item       TEXT    NOT NULL,
    segment    INTEGER NOT NULL,
    allocated  INTEGER NOT NULL,
    available  INTEGER NOT NULL,
    held       INTEGER NOT NULL DEFAULT 0,
    confirmed  INTEGER NOT NULL DEFAULT 0,
    -- The id of the last applied outbox entry, `MILLISECONDS-SEQUENCE`; NULL until the first.
    checkpoint TEXT,
    -- A hash of that entry's content: after a failover, another entry could have the same id.
    anchor     INTEGER,
    version    INTEGER NOT NULL DEFAULT 1,
    fence      INTEGER NOT NULL DEFAULT 0,
    CONSTRAINT segments_pkey PRIMARY KEY (item, segment),
    CONSTRAINT segments_item_fkey FOREIGN KEY (item) REFERENCES items (id),
    -- This constraint refuses an oversell.
    CONSTRAINT segments_available_not_negative CHECK (available >= 0),
    CONSTRAINT segments_held_not_negative CHECK (held >= 0),
    CONSTRAINT segments_confirmed_not_negative CHECK (confirmed >= 0),
    CONSTRAINT segments_units_accounted_for CHECK (available + held + confirmed = allocated),
    CONSTRAINT segments_anchored CHECK ((checkpoint IS NULL) = (anchor IS NULL))
) STRICT, WITHOUT ROWID;

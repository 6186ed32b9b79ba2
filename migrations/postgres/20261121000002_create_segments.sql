-- Each segment, replayed up to its checkpoint. One row for each segment and one update for each
-- batch, so that a hot item has no hot row.
CREATE TABLE segments (
    item       text    NOT NULL,
    segment    integer NOT NULL,
    allocated  bigint  NOT NULL,
    available  bigint  NOT NULL,
    held       bigint  NOT NULL DEFAULT 0,
    confirmed  bigint  NOT NULL DEFAULT 0,
    -- The id of the last applied outbox entry, `MILLISECONDS-SEQUENCE`; NULL until the first.
    checkpoint text,
    -- A hash of that entry's content: after a failover, another entry could have the same id.
    anchor     bigint,
    version    bigint  NOT NULL DEFAULT 1,
    fence      bigint  NOT NULL DEFAULT 0,
    CONSTRAINT segments_pkey PRIMARY KEY (item, segment),
    CONSTRAINT segments_item_fkey FOREIGN KEY (item) REFERENCES items (id),
    -- This constraint refuses an oversell.
    CONSTRAINT segments_available_not_negative CHECK (available >= 0),
    CONSTRAINT segments_held_not_negative CHECK (held >= 0),
    CONSTRAINT segments_confirmed_not_negative CHECK (confirmed >= 0),
    CONSTRAINT segments_units_accounted_for CHECK (available + held + confirmed = allocated),
    CONSTRAINT segments_anchored CHECK ((checkpoint IS NULL) = (anchor IS NULL))
)
-- Rows change with every batch, and never in an indexed column: with free space on the page, an
-- update needs no new index entry.
WITH (fillfactor = 50);

-- `as_created` is the item as it was created. A repeated request to create the item is compared
-- with it, because stock, limit and window can change later. `returning` are units of ended orders
-- until their segment has released them: no order has them, and they cannot be sold yet.
--
-- SQLite changes a constraint by creating the table again. The new segments refer to the new items
-- from the start, and the old segments are dropped first. At no moment does a row refer to a
-- missing one, and renaming the new items also renames the reference.
CREATE TABLE items_extended (
    id              TEXT    NOT NULL,
    -- The first 32 bits of the ids of the item's orders: finds the item of an order that is not
    -- recorded yet.
    tag             INTEGER NOT NULL,
    title           TEXT    NOT NULL,
    stock           INTEGER NOT NULL,
    price_cents     INTEGER NOT NULL,
    currency        TEXT    NOT NULL,
    limit_per_buyer INTEGER,
    segments        INTEGER NOT NULL,
    opens_at        INTEGER,
    closes_at       INTEGER,
    hold_seconds    INTEGER NOT NULL,
    durability      TEXT    NOT NULL,
    state           TEXT    NOT NULL,
    epoch           INTEGER NOT NULL,
    version         INTEGER NOT NULL DEFAULT 1,
    fence           INTEGER NOT NULL DEFAULT 0,
    created_at      INTEGER NOT NULL DEFAULT (unixepoch() * 1000),
    as_created      TEXT    NOT NULL,
    CONSTRAINT items_pkey PRIMARY KEY (id),
    CONSTRAINT items_stock_not_negative CHECK (stock >= 0),
    CONSTRAINT items_price_not_negative CHECK (price_cents >= 0),
    CONSTRAINT items_limit_positive CHECK (limit_per_buyer > 0),
    CONSTRAINT items_segments_positive CHECK (segments > 0),
    CONSTRAINT items_hold_positive CHECK (hold_seconds > 0),
    CONSTRAINT items_window_in_order CHECK (closes_at > opens_at),
    CONSTRAINT items_durability_known CHECK (durability IN ('recorded', 'replicated', 'accepted')),
    CONSTRAINT items_state_known CHECK (state IN ('open', 'paused', 'closed'))
) STRICT;

-- Before this migration only the state could change: the other columns still have the values of the
-- creation.
INSERT INTO items_extended (id, tag, title, stock, price_cents, currency, limit_per_buyer, segments, opens_at, closes_at, hold_seconds,
                            durability, state, epoch, version, fence, created_at, as_created)
SELECT id, tag, title, stock, price_cents, currency, limit_per_buyer, segments, opens_at, closes_at, hold_seconds,
       durability, state, epoch, version, fence, created_at,
       json_object('title', title, 'stock', stock, 'price_cents', price_cents, 'currency', currency, 'limit_per_buyer', limit_per_buyer,
                   'segments', segments, 'opens_ms', opens_at, 'closes_ms', closes_at, 'hold_seconds', hold_seconds,
                   'durability', durability)
FROM items;

CREATE TABLE segments_extended (
    item        TEXT    NOT NULL,
    segment     INTEGER NOT NULL,
    allocated   INTEGER NOT NULL,
    available   INTEGER NOT NULL,
    held        INTEGER NOT NULL DEFAULT 0,
    confirmed   INTEGER NOT NULL DEFAULT 0,
    "returning" INTEGER NOT NULL DEFAULT 0,
    -- The id of the last applied outbox entry, `MILLISECONDS-SEQUENCE`; NULL until the first.
    checkpoint  TEXT,
    -- A hash of that entry's content: after a failover, another entry could have the same id.
    anchor      INTEGER,
    version     INTEGER NOT NULL DEFAULT 1,
    fence       INTEGER NOT NULL DEFAULT 0,
    CONSTRAINT segments_pkey PRIMARY KEY (item, segment),
    CONSTRAINT segments_item_fkey FOREIGN KEY (item) REFERENCES items_extended (id),
    -- This constraint refuses an oversell.
    CONSTRAINT segments_available_not_negative CHECK (available >= 0),
    CONSTRAINT segments_held_not_negative CHECK (held >= 0),
    CONSTRAINT segments_confirmed_not_negative CHECK (confirmed >= 0),
    CONSTRAINT segments_returning_not_negative CHECK ("returning" >= 0),
    CONSTRAINT segments_units_accounted_for CHECK (available + held + confirmed + "returning" = allocated),
    CONSTRAINT segments_anchored CHECK ((checkpoint IS NULL) = (anchor IS NULL))
) STRICT, WITHOUT ROWID;

INSERT INTO segments_extended (item, segment, allocated, available, held, confirmed, checkpoint, anchor, version, fence)
SELECT item, segment, allocated, available, held, confirmed, checkpoint, anchor, version, fence
FROM segments;

DROP TABLE segments;
DROP TABLE items;
ALTER TABLE items_extended RENAME TO items;
ALTER TABLE segments_extended RENAME TO segments;

-- Not unique: two items may share a tag, and nothing relies on tags being distinct.
CREATE INDEX items_tag ON items (tag);

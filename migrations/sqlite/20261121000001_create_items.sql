-- Items. `epoch` rises with every change of state, so that a segment can refuse an outdated state
-- that arrives late. Every change checks `version`. `fence` is the highest fencing token that has
-- claimed the row. Times are in milliseconds since 1970.
CREATE TABLE items (
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
    CONSTRAINT items_pkey PRIMARY KEY (id),
    CONSTRAINT items_stock_not_negative CHECK (stock >= 0),
    CONSTRAINT items_price_not_negative CHECK (price_cents >= 0),
    CONSTRAINT items_limit_positive CHECK (limit_per_buyer > 0),
    CONSTRAINT items_segments_positive CHECK (segments > 0),
    CONSTRAINT items_hold_positive CHECK (hold_seconds > 0),
    CONSTRAINT items_window_in_order CHECK (closes_at > opens_at),
    CONSTRAINT items_durability_known CHECK (durability IN ('recorded', 'accepted')),
    CONSTRAINT items_state_known CHECK (state IN ('open', 'paused', 'closed'))
) STRICT;

-- Not unique: two items may share a tag, and nothing relies on tags being distinct.
CREATE INDEX items_tag ON items (tag);

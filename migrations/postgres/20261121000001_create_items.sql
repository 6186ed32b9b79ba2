-- Items. `epoch` rises with every change of state, so that a segment can refuse an outdated state
-- that arrives late. Every change checks `version`. `fence` is the highest fencing token that has
-- claimed the row.
CREATE TABLE items (
    id              text        NOT NULL,
    -- The first 32 bits of the ids of the item's orders: finds the item of an order that is not
    -- recorded yet.
    tag             bigint      NOT NULL,
    title           text        NOT NULL,
    stock           bigint      NOT NULL,
    price_cents     bigint      NOT NULL,
    currency        text        NOT NULL,
    limit_per_buyer bigint,
    segments        integer     NOT NULL,
    opens_at        timestamptz,
    closes_at       timestamptz,
    hold_seconds    bigint      NOT NULL,
    durability      text        NOT NULL,
    state           text        NOT NULL,
    epoch           bigint      NOT NULL,
    version         bigint      NOT NULL DEFAULT 1,
    fence           bigint      NOT NULL DEFAULT 0,
    created_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT items_pkey PRIMARY KEY (id),
    CONSTRAINT items_stock_not_negative CHECK (stock >= 0),
    CONSTRAINT items_price_not_negative CHECK (price_cents >= 0),
    CONSTRAINT items_limit_positive CHECK (limit_per_buyer > 0),
    CONSTRAINT items_segments_positive CHECK (segments > 0),
    CONSTRAINT items_hold_positive CHECK (hold_seconds > 0),
    CONSTRAINT items_window_in_order CHECK (closes_at > opens_at),
    CONSTRAINT items_durability_known CHECK (durability IN ('recorded', 'accepted')),
    CONSTRAINT items_state_known CHECK (state IN ('open', 'paused', 'closed'))
);

-- Not unique: two items may share a tag, and nothing relies on tags being distinct.
CREATE INDEX items_tag ON items (tag);

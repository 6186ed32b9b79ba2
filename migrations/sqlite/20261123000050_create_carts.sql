-- Carts: orders of several items that are bought all or none. The row is written before any of its
-- orders takes units, so a process that finds one of them knows its cart. `deadline` is when placing it has
-- to be done. `due_at` is when a reconciler has to look at it; NULL: never again. Times are in
-- milliseconds since 1970.
CREATE TABLE carts (
    id           BLOB    NOT NULL,
    buyer        TEXT    NOT NULL,
    state        TEXT    NOT NULL,
    amount       INTEGER NOT NULL,
    currency     TEXT    NOT NULL,
    deadline     INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    due_at       INTEGER,
    payment      TEXT,
    refusal      TEXT,
    refused_item TEXT,
    version      INTEGER NOT NULL DEFAULT 1,
    CONSTRAINT carts_pkey PRIMARY KEY (id),
    CONSTRAINT carts_amount_not_negative CHECK (amount >= 0),
    CONSTRAINT carts_state_known
        CHECK (state IN ('placing', 'held', 'confirmed', 'cancelled', 'expired', 'refund_due', 'refunded', 'failed')),
    CONSTRAINT carts_refusal_known
        CHECK (refusal IN ('sold_out', 'buyer_limit_reached', 'not_open', 'timed_out')),
    CONSTRAINT carts_failed_by_refusal CHECK ((state = 'failed') = (refusal IS NOT NULL)),
    CONSTRAINT carts_open_are_due CHECK (state NOT IN ('placing', 'held') OR due_at IS NOT NULL)
) STRICT, WITHOUT ROWID;

CREATE INDEX carts_due ON carts (due_at) WHERE due_at IS NOT NULL;

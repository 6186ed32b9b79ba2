-- Refunds by the provider's id, so that a repeated report changes nothing, and a refund that fails is
-- told from the one that replaces it. `created_at` and `failed_at` are times of the provider where it
-- names them, in milliseconds since 1970. `is_done`: an admin has noted that the money of this failed
-- refund was returned. `unclaimed_at`: when it was reported, while nothing is known of its payment. Such
-- a refund is deleted after 30 days. No name of a buyer is in here. A purge deletes the refunds of the
-- orders that it deletes.
CREATE TABLE refunds (
    id           TEXT    NOT NULL,
    payment      TEXT    NOT NULL,
    state        TEXT    NOT NULL,
    amount       INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    failed_at    INTEGER,
    is_done      INTEGER NOT NULL DEFAULT 0,
    unclaimed_at INTEGER,
    CONSTRAINT refunds_pkey PRIMARY KEY (id),
    CONSTRAINT refunds_state_is_known CHECK (state IN ('pending', 'requires_action', 'succeeded', 'failed', 'canceled')),
    CONSTRAINT refunds_amount_is_not_negative CHECK (amount >= 0),
    CONSTRAINT refunds_failed_at_is_of_a_failure CHECK ((failed_at IS NOT NULL) = (state IN ('failed', 'canceled')))
) STRICT, WITHOUT ROWID;

CREATE INDEX refunds_of_payment ON refunds (payment);

CREATE INDEX refunds_unclaimed ON refunds (unclaimed_at) WHERE unclaimed_at IS NOT NULL;

-- Where events are sent. Each webhook has its own position among the events, so that a slow or broken
-- receiver delays no other.
CREATE TABLE webhooks (
    id              uuid        NOT NULL,
    url             text        NOT NULL,
    -- The kinds of events to send; none listed: all.
    kinds           text[]      NOT NULL,
    -- Signs each message, so it cannot be stored as a hash.
    secret          text        NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    -- The last event that was delivered, or that is of another kind.
    xid             xid8        NOT NULL,
    seq             bigint      NOT NULL,
    -- The publisher that sends, until its lease ends.
    publisher       uuid,
    leased_until    timestamptz,
    -- Failed attempts in a row.
    failures        integer     NOT NULL DEFAULT 0,
    failing_since   timestamptz,
    next_attempt_at timestamptz,
    last_error      text,
    disabled_at     timestamptz,
    CONSTRAINT webhooks_pkey PRIMARY KEY (id),
    CONSTRAINT webhooks_failures_not_negative CHECK (failures >= 0),
    CONSTRAINT webhooks_failing_since_the_first CHECK ((failures = 0) = (failing_since IS NULL)),
    CONSTRAINT webhooks_leased_by_one CHECK ((publisher IS NULL) = (leased_until IS NULL))
);

-- Where events are sent. Each webhook has its own position among the events, so that a slow or broken
-- receiver delays no other. Times are in milliseconds since 1970.
CREATE TABLE webhooks (
    id              BLOB    NOT NULL,
    url             TEXT    NOT NULL,
    -- The kinds of events to send, a JSON list; none listed: all.
    kinds           TEXT    NOT NULL,
    -- Signs each message, so it cannot be stored as a hash.
    secret          TEXT    NOT NULL,
    created_at      INTEGER NOT NULL DEFAULT (unixepoch() * 1000),
    -- The last event that was delivered, or that is of another kind.
    seq             INTEGER NOT NULL,
    -- The publisher that sends, until its lease ends.
    publisher       BLOB,
    leased_until    INTEGER,
    -- Failed attempts in a row.
    failures        INTEGER NOT NULL DEFAULT 0,
    failing_since   INTEGER,
    next_attempt_at INTEGER,
    last_error      TEXT,
    disabled_at     INTEGER,
    CONSTRAINT webhooks_pkey PRIMARY KEY (id),
    CONSTRAINT webhooks_id_is_a_uuid CHECK (length(id) = 16),
    CONSTRAINT webhooks_kinds_are_json CHECK (json_valid(kinds)),
    CONSTRAINT webhooks_failures_not_negative CHECK (failures >= 0),
    CONSTRAINT webhooks_failing_since_the_first CHECK ((failures = 0) = (failing_since IS NULL)),
    CONSTRAINT webhooks_leased_by_one CHECK ((publisher IS NULL) = (leased_until IS NULL))
) STRICT, WITHOUT ROWID;

-- Brokers that get every event. Each sink has its own position among the events, so that a broker that
-- is slow or down delays no other. Times are in milliseconds since 1970.
CREATE TABLE sinks (
    -- The kind of broker: `redis`, `nats` or `amqp`.
    name         TEXT    NOT NULL,
    created_at   INTEGER NOT NULL DEFAULT (unixepoch() * 1000),
    -- The last event that the broker has acknowledged.
    seq          INTEGER NOT NULL,
    -- The publisher that publishes, until its lease ends.
    publisher    BLOB,
    leased_until INTEGER,
    -- When a publisher last had it. Old events stay for a sink that is in use, and not for one that was
    -- removed from the settings.
    served_at    INTEGER NOT NULL,
    CONSTRAINT sinks_pkey PRIMARY KEY (name),
    CONSTRAINT sinks_leased_by_one CHECK ((publisher IS NULL) = (leased_until IS NULL))
) STRICT, WITHOUT ROWID;

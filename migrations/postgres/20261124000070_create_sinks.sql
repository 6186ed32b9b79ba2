-- Brokers that get every event. Each sink has its own position among the events, so that a broker that
-- is slow or down delays no other.
CREATE TABLE sinks (
    -- The kind of broker: `redis`, `nats` or `amqp`.
    name         text        NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    -- The last event that the broker has acknowledged.
    xid          xid8        NOT NULL,
    seq          bigint      NOT NULL,
    -- The publisher that publishes, until its lease ends.
    publisher    uuid,
    leased_until timestamptz,
    -- When a publisher last had it. Old events stay for a sink that is in use, and not for one that was
    -- removed from the settings.
    served_at    timestamptz NOT NULL,
    CONSTRAINT sinks_pkey PRIMARY KEY (name),
    CONSTRAINT sinks_leased_by_one CHECK ((publisher IS NULL) = (leased_until IS NULL))
);

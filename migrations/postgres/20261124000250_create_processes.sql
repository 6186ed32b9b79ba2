-- The processes of Stockade that run, and those that were silent for less than an hour. Each reports
-- itself every few seconds. Nothing is decided by these rows: they are shown to operators.
CREATE TABLE processes (
    -- Random, anew for each start.
    id         uuid        NOT NULL,
    -- Separated by commas.
    roles      text        NOT NULL,
    version    text        NOT NULL,
    host       text        NOT NULL,
    pid        bigint      NOT NULL,
    started_at timestamptz NOT NULL,
    -- The last report, by the database's clock and by that of the process.
    seen_at    timestamptz NOT NULL DEFAULT now(),
    clock_at   timestamptz NOT NULL,
    -- The item locks that it had last, as a JSON array.
    locks      text        NOT NULL DEFAULT '[]',
    CONSTRAINT processes_pkey PRIMARY KEY (id)
);

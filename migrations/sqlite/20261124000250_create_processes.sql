-- The processes of Stockade that run, and those that were silent for less than an hour. Each reports
-- itself every few seconds. Nothing is decided by these rows: they are shown to operators. Times are in
-- milliseconds since 1970.
CREATE TABLE processes (
    -- Random, anew for each start.
    id         BLOB    NOT NULL,
    -- Separated by commas.
    roles      TEXT    NOT NULL,
    version    TEXT    NOT NULL,
    host       TEXT    NOT NULL,
    pid        INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    -- The last report.
    seen_at    INTEGER NOT NULL,
    -- The item locks that it had last, as a JSON array.
    locks      TEXT    NOT NULL DEFAULT '[]',
    CONSTRAINT processes_pkey PRIMARY KEY (id)
) STRICT, WITHOUT ROWID;

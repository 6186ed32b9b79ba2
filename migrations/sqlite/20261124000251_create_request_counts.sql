-- What came of the requests for each item, as order services report it: totals of a process since its
-- start, so that a report that is repeated counts once. Processes that have ended share the process 0.
-- No foreign key: nothing is decided by these rows, and a report must not lock an item's row.
CREATE TABLE request_counts (
    process  BLOB NOT NULL,
    item     TEXT NOT NULL,
    arrived  INTEGER NOT NULL,
    shed     INTEGER NOT NULL,
    sold_out INTEGER NOT NULL,
    limited  INTEGER NOT NULL,
    not_open INTEGER NOT NULL,
    repeated INTEGER NOT NULL,
    held     INTEGER NOT NULL,
    CONSTRAINT request_counts_pkey PRIMARY KEY (item, process)
) STRICT, WITHOUT ROWID;
CREATE INDEX request_counts_of_process ON request_counts (process);

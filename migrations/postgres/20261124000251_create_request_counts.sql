-- What came of the requests for each item, as order services report it: totals of a process since its
-- start, so that a report that is repeated counts once. Processes that have ended share the process 0.
-- No foreign key: nothing is decided by these rows, and a report must not lock an item's row.
CREATE TABLE request_counts (
    process  uuid NOT NULL,
    item     text NOT NULL,
    arrived  bigint NOT NULL,
    shed     bigint NOT NULL,
    sold_out bigint NOT NULL,
    limited  bigint NOT NULL,
    not_open bigint NOT NULL,
    repeated bigint NOT NULL,
    held     bigint NOT NULL,
    CONSTRAINT request_counts_pkey PRIMARY KEY (item, process)
);
CREATE INDEX request_counts_of_process ON request_counts (process);

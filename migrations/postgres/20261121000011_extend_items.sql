-- Orders that were taken before a limit was lowered may be recorded after the change. For a while
-- the ledger checks them against the previous limit. The largest bigint means no limit.
ALTER TABLE items
    ADD COLUMN limit_before bigint,
    ADD COLUMN limit_lowered_at timestamptz;

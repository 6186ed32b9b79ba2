-- Orders that were taken before a limit was lowered may be recorded after it: for a while the ledger holds them against the limit as it was. The largest
-- integer is no limit.
ALTER TABLE items ADD COLUMN limit_before INTEGER;
ALTER TABLE items ADD COLUMN limit_lowered_at INTEGER;

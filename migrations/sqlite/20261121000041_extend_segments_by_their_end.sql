-- Whether the segment's item is archived.
ALTER TABLE segments ADD COLUMN archived INTEGER NOT NULL DEFAULT 0
    CONSTRAINT segments_archived_or_not CHECK (archived IN (0, 1));

-- The segments that recorders poll.
CREATE INDEX segments_live ON segments (item, segment) WHERE NOT archived;

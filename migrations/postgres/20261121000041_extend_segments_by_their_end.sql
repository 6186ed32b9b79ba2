-- Whether the segment's item is archived. Transitions and recorders lock the segment's row and not
-- the item's, so the row itself says it.
ALTER TABLE segments ADD COLUMN archived boolean NOT NULL DEFAULT false;

-- The segments that recorders poll.
CREATE INDEX segments_live ON segments (item, segment) WHERE NOT archived;

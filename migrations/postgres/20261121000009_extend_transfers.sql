-- How many units the request was for that this is a part of: a key that comes again with another wish is known by it. Where fewer could be had than were
-- wished for, the parts do not say. Null: nobody wished for it (between segments), or it is older than this column.
ALTER TABLE transfers
    ADD COLUMN wished bigint,
    ADD CONSTRAINT transfers_wished_positive CHECK (wished > 0);

-- Units of the whole request that the transfer is a part of. It detects a key that is used again
-- for a different request; the parts alone do not tell, because they may come to fewer units than
-- requested. NULL: no operator requested the transfer (between segments), or it is older than this
-- column.
ALTER TABLE transfers ADD COLUMN requested INTEGER CONSTRAINT transfers_requested_positive CHECK (requested > 0);

-- All transfers of an item, page by page: a repair writes them back into the segments, and a purge
-- deletes them.
CREATE INDEX transfers_of_item ON transfers (item, id);

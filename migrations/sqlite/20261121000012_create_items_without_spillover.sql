-- Items whose recorded orders are all at their buyer's home: everything that the ledger has for a
-- buyer then came from the outbox of the buyer's home, which counts it. The first off-home order
-- deletes the row, and from then on the recorder queries the ledger's orders. Items without a row
-- are always queried, including items from before this table. While an item has no limit, no
-- off-home order is detected; once it gets one, `limit_before` shows that the limit has changed.
CREATE TABLE items_without_spillover (
    item TEXT NOT NULL,
    CONSTRAINT items_without_spillover_pkey PRIMARY KEY (item),
    CONSTRAINT items_without_spillover_item_fkey FOREIGN KEY (item) REFERENCES items (id)
) STRICT, WITHOUT ROWID;

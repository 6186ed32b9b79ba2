-- Items of which an order was recorded, at some time, in another segment than its buyer's home. As long as there is none, what the ledger has of a buyer
-- stands in the outbox of the buyer's home, which counts it; after that, whoever records asks what the ledger has.
CREATE TABLE strayed (
    item text NOT NULL,
    CONSTRAINT strayed_pkey PRIMARY KEY (item),
    CONSTRAINT strayed_item_fkey FOREIGN KEY (item) REFERENCES items (id)
);

-- Until now nobody wrote it down.
INSERT INTO strayed (item) SELECT id FROM items;

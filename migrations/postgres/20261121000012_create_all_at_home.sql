-- Items of which every recorded order stands at its buyer's home: what the ledger has of a buyer then came out of the outbox of the buyer's home, which counts
-- it. The first order that strayed ends that, and whoever records asks what the ledger has from then on. An item that is not here is asked for, so what was
-- there before, or came by another way than ours, is. As long as an item has no limit nobody looks: once it has one, `limit_before` says that it was changed.
CREATE TABLE all_at_home (
    item text NOT NULL,
    CONSTRAINT all_at_home_pkey PRIMARY KEY (item),
    CONSTRAINT all_at_home_item_fkey FOREIGN KEY (item) REFERENCES items (id)
);

-- The price of a unit that the buyer was told. NULL: the item's `price`.
ALTER TABLE orders ADD COLUMN price bigint;

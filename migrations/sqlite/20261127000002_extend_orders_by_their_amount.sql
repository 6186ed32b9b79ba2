-- What the shop says that the order costs. NULL: the price of its units.
ALTER TABLE orders ADD COLUMN amount INTEGER;

-- The orders of a buyer by id: the buyer's own list reads them page by page, and an erasure finds them.
CREATE INDEX orders_of_buyer ON orders (buyer, id);

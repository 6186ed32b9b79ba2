-- The orders that were cancelled or refunded, so that a page of them is found without reading the rest of a
-- sale. No other order is in it: the end of many holds at once must not cost more.
CREATE INDEX orders_undone ON orders (state, id) WHERE state IN ('cancelled', 'refunded');

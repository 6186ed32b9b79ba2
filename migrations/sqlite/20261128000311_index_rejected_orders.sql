-- The orders that the ledger refused to cover, so that an audit counts them without reading the others. No
-- other order is in it, and an order that is recorded as held never enters it.
CREATE INDEX orders_rejected ON orders (id) WHERE state = 'rejected';

-- no-transaction
-- The orders that the ledger refused to cover, so that an audit counts them without reading the others. No
-- other order is in it, and an order that is recorded as held never enters it.
--
-- It is built beside a sale, so it cannot be part of a transaction.
CREATE INDEX CONCURRENTLY IF NOT EXISTS orders_rejected ON orders (id) WHERE state = 'rejected';

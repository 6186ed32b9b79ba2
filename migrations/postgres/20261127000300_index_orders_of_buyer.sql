-- no-transaction
-- The orders of a buyer by id: the buyer's own list reads them page by page, and an erasure finds them.
-- Names are compared byte by byte (`text_pattern_ops`), which costs an order less than the rules of a
-- language, and survives an update of these rules.
--
-- It is built beside a sale, so it cannot be part of a transaction. An index that exists and is valid was
-- built by hand, or by a process that ended before it could say so. Before this statement the ledger drops
-- an index of this name that is half built.
CREATE INDEX CONCURRENTLY IF NOT EXISTS orders_of_buyer ON orders (buyer text_pattern_ops, id);

-- When an order's units were taken first, in milliseconds since 1970. `expires_at` does not tell it: a
-- hold can be extended, and a late payment takes units again. NULL: such a payment came before this
-- migration.
ALTER TABLE orders ADD COLUMN created_at INTEGER;

UPDATE orders SET created_at = expires_at - items.hold_seconds * 1000
FROM items WHERE items.id = orders.item AND orders.attempt = 0;

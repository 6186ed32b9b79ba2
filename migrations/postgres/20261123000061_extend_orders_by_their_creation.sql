-- When an order's units were taken first. `expires_at` does not tell it: a hold can be extended, and a
-- late payment takes units again. NULL: such a payment came before this migration.
ALTER TABLE orders ADD COLUMN created_at timestamptz;

UPDATE orders SET created_at = expires_at - items.hold_seconds * interval '1 second'
FROM items WHERE items.id = orders.item AND orders.attempt = 0;

-- The price of orders to come. NULL: still `price`, which the item was created with and which never changes.
ALTER TABLE items ADD COLUMN new_price INTEGER CONSTRAINT items_new_price_not_negative CHECK (new_price >= 0);

-- What the lines cost together when the cart was placed. NULL: the `price` of their items.
ALTER TABLE carts ADD COLUMN price INTEGER;

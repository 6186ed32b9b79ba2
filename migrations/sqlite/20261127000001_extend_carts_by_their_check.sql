-- Whether only a payment of the cart's `amount` pays it. If not, the shop checks what was paid, and the payment
-- sets `amount`.
ALTER TABLE carts ADD COLUMN is_checked INTEGER NOT NULL DEFAULT 1;

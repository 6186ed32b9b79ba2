-- The life of an order after it was held. `attempt` counts how many times its units were reacquired
-- after a release. `payment` is the payment that confirmed it, or that must be refunded
-- (`refund_due`).
ALTER TABLE orders
    ADD COLUMN attempt smallint NOT NULL DEFAULT 0,
    ADD COLUMN payment text,
    ADD CONSTRAINT orders_attempt_known CHECK (attempt BETWEEN 0 AND 7),
    DROP CONSTRAINT orders_state_known,
    ADD CONSTRAINT orders_state_known
        CHECK (state IN ('held', 'confirmed', 'cancelled', 'expired', 'refund_due', 'refunded', 'rejected'));

-- Held orders by deadline. An order leaves the index with the state `held`, so the index stays as
-- small as the number of open orders.
CREATE INDEX orders_due ON orders (expires_at) WHERE state = 'held';

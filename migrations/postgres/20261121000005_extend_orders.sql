-- An order goes on after it was held. `attempt` counts how often its units were taken anew after they had been given back;
-- `payment` is what confirmed it, or what is to be given back (`refund_due`).
ALTER TABLE orders
    ADD COLUMN attempt smallint NOT NULL DEFAULT 0,
    ADD COLUMN payment text,
    ADD CONSTRAINT orders_attempt_known CHECK (attempt BETWEEN 0 AND 7),
    DROP CONSTRAINT orders_state_known,
    ADD CONSTRAINT orders_state_known
        CHECK (state IN ('held', 'confirmed', 'cancelled', 'expired', 'refund_due', 'refunded', 'rejected'));

-- Whose hold is over. An order leaves it with the state `held`, so it stays as small as what is open.
CREATE INDEX orders_due ON orders (expires_at) WHERE state = 'held';

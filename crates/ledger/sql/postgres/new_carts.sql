-- apart

-- name: INSERT
-- A cart with all of its lines in one round trip, or neither.
WITH new AS (
    INSERT INTO carts (id, buyer, state, amount, currency, deadline, expires_at, due_at,
                       is_checked, price)
    VALUES ($1, $2, $3, $4, $5, to_timestamp($6::double precision / 1000),
            to_timestamp($7::double precision / 1000), to_timestamp($6::double precision / 1000),
            $11, $12)
    ON CONFLICT (id) DO NOTHING RETURNING id)
INSERT INTO cart_lines (order_id, cart, place, item, quantity)
SELECT order_id, new.id, place, item, quantity
FROM new, UNNEST($8::uuid[], $9::text[], $10::bigint[])
    WITH ORDINALITY AS line (order_id, item, quantity, place)

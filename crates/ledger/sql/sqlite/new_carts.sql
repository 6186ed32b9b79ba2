-- apart

-- name: INSERT
INSERT INTO carts (id, buyer, state, amount, currency, deadline, expires_at, due_at,
                   is_checked, price)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?6, ?8, ?9) ON CONFLICT (id) DO NOTHING

-- name: INSERT_LINES
INSERT INTO cart_lines (order_id, cart, place, item, quantity)
SELECT unhex(value ->> 0), ?1, value ->> 1, value ->> 2, value ->> 3 FROM json_each(?2)

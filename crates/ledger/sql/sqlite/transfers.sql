-- apart

-- name: ADD
INSERT INTO transfers (id, item, from_segment, to_segment, quantity, moved, state, since, token,
                       requested)
SELECT unhex(value ->> 0), value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5,
       value ->> 6, value ->> 7, ?2, ?3
FROM json_each(?1) WHERE true ON CONFLICT (id) DO NOTHING

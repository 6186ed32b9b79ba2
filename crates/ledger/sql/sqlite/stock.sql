-- name: OPEN_TRANSFERS
SELECT {transfer_columns!} FROM transfers
WHERE state <> 'done' AND (?1 IS NULL OR item = ?1) ORDER BY since, id

-- name: TRANSFERS
SELECT {transfer_columns!} FROM transfers
WHERE id IN (SELECT unhex(value) FROM json_each(?1)) ORDER BY id

-- name: ADD_TRANSFERS
INSERT INTO transfers (id, item, from_segment, to_segment, quantity, moved, state, since, token,
                       requested)
SELECT unhex(value ->> 0), value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5,
       value ->> 6, value ->> 7, ?2, ?3
FROM json_each(?1) WHERE true ON CONFLICT (id) DO NOTHING

-- name: FINISH
UPDATE transfers SET state = 'done'
WHERE id = ?1 AND item = ?2 AND to_segment IS NULL AND state = 'out' RETURNING moved

-- name: BELONG_TO_OTHER_CHANGE
SELECT EXISTS (
    SELECT 1 FROM json_each(?1) JOIN transfers ON transfers.id = unhex(value ->> 0)
    WHERE requested <> ?2 OR (from_segment IS NULL) <> (value ->> 1))

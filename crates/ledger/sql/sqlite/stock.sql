-- name: OPEN_TRANSFERS
SELECT {transfer_columns!} FROM transfers
WHERE state <> 'done' AND (?1 IS NULL OR item = ?1) ORDER BY since, id

-- name: TRANSFERS
SELECT {transfer_columns!} FROM transfers
WHERE id IN (SELECT unhex(value) FROM json_each(?1)) ORDER BY id

-- name: FINISH
UPDATE transfers SET state = 'done'
WHERE id = ?1 AND item = ?2 AND to_segment IS NULL AND state = 'out' RETURNING moved

-- name: BELONG_TO_OTHER_CHANGE
SELECT EXISTS (
    SELECT 1 FROM json_each(?1) JOIN transfers ON transfers.id = unhex(value ->> 0)
    WHERE requested <> ?2 OR (from_segment IS NULL) <> (value ->> 1))

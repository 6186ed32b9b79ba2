-- name: OPEN_TRANSFERS
SELECT {transfer_columns!} FROM transfers
WHERE state <> 'done' AND ($1 IS NULL OR item = $1) ORDER BY since, id

-- name: TRANSFERS
SELECT {transfer_columns!} FROM transfers WHERE id = ANY($1) ORDER BY id

-- name: ADD_TRANSFERS
-- In the order of ids, in which every transaction locks transfers.
INSERT INTO transfers (id, item, from_segment, to_segment, quantity, moved, state, since, token,
                       requested)
SELECT id, item, from_segment, to_segment, quantity, moved, state,
       to_timestamp(since_ms::double precision / 1000), $9, $10
FROM UNNEST($1::uuid[], $2::text[], $3::integer[], $4::integer[], $5::bigint[], $6::bigint[],
            $7::text[], $8::bigint[])
    AS new (id, item, from_segment, to_segment, quantity, moved, state, since_ms)
ORDER BY id ON CONFLICT (id) DO NOTHING

-- name: FINISH
UPDATE transfers SET state = 'done'
WHERE id = $1 AND item = $2 AND to_segment IS NULL AND state = 'out' RETURNING moved

-- name: BELONG_TO_OTHER_CHANGE
SELECT EXISTS (
    SELECT FROM transfers
    JOIN UNNEST($1::uuid[], $2::boolean[]) AS this (id, is_new) USING (id)
    WHERE requested <> $3 OR (from_segment IS NULL) <> is_new)

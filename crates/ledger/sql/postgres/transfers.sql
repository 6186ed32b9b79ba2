-- apart

-- name: ADD
-- In the order of ids, in which every transaction locks transfers.
INSERT INTO transfers (id, item, from_segment, to_segment, quantity, moved, state, token, since,
                       requested)
SELECT id, item, from_segment, to_segment, quantity, moved, state, $8,
       to_timestamp(since_ms::double precision / 1000), $10
FROM UNNEST($1::uuid[], $2::text[], $3::integer[], $4::integer[], $5::bigint[], $6::bigint[],
            $7::text[], $9::bigint[])
    AS new (id, item, from_segment, to_segment, quantity, moved, state, since_ms)
ORDER BY id ON CONFLICT (id) DO NOTHING

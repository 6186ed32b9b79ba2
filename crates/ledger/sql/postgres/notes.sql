-- apart

-- name: NOTE
-- The event belongs to the entry: a repeat adds neither.
WITH noted AS (
    INSERT INTO journal (at, item, actor, action, token, before, after, once)
    VALUES (to_timestamp($1::double precision / 1000), $8, $9, $10, $11, $12::jsonb, $13::jsonb,
            $14)
    ON CONFLICT (item, once) WHERE once IS NOT NULL DO NOTHING RETURNING id),
happened AS ({insert_events!} WHERE EXISTS (SELECT FROM noted))
SELECT count(*) FROM noted

-- name: NOTE_ALL
INSERT INTO journal (at, item, actor, action, token, before, after)
SELECT to_timestamp($1::double precision / 1000), item, actor, action, token,
       before::jsonb, after::jsonb
FROM UNNEST($2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[])
    WITH ORDINALITY AS new (item, actor, action, token, before, after, place)
ORDER BY place

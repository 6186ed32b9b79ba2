-- name: LIST
SELECT id, (extract(epoch FROM at) * 1000)::bigint AS at_ms, actor, action, subject,
       before::text, after::text
FROM service_journal WHERE id < $1 ORDER BY id DESC LIMIT $2

-- name: NOTE
INSERT INTO service_journal (at, actor, action, subject, before, after)
VALUES (to_timestamp($1::double precision / 1000), $2, $3, $4, $5::jsonb, $6::jsonb)

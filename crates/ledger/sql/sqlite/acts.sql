-- name: LIST
SELECT id, at AS at_ms, actor, action, subject, before, after
FROM service_journal WHERE id < ?1 ORDER BY id DESC LIMIT ?2

-- name: NOTE
INSERT INTO service_journal (at, actor, action, subject, before, after)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)

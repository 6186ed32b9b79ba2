-- apart

-- name: NOTE
INSERT INTO journal (at, item, actor, action, token, before, after, once)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (item, once) WHERE once IS NOT NULL DO NOTHING

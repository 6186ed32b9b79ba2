-- apart

-- name: INSERT
INSERT INTO segments (item, segment, allocated, available) VALUES (?1, ?2, ?3, ?3)

-- apart

-- name: DELETE
DELETE FROM request_counts WHERE process = ?1

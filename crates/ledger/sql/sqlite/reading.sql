-- name: ITEMS_TAGGED
SELECT {item_columns!} FROM items WHERE tag = ?1 ORDER BY id

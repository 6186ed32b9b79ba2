-- fragment: ENTRY
SELECT id, at AS at_ms, item, actor, action, token, before, after

-- name: BY_ID
{ENTRY} FROM journal WHERE id = ?1

-- name: OF_ITEM
{ENTRY} FROM journal WHERE item = ?1 ORDER BY id DESC LIMIT ?2

-- name: IS_NOTED
SELECT EXISTS (SELECT 1 FROM journal WHERE item = ?1 AND once = ?2)

-- name: UNMATCHED
{ENTRY}
FROM journal INDEXED BY journal_unmatched_of_payment
WHERE action = 'unmatched_payment' AND after ->> 'payment' = ?1
  AND before ->> 'order' IS NOT NULL
ORDER BY id LIMIT 1

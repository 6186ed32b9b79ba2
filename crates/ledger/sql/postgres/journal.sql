-- fragment: ENTRY
SELECT id, (extract(epoch FROM at) * 1000)::bigint AS at_ms, item, actor, action, token,
       before::text, after::text

-- name: BY_ID
{ENTRY} FROM journal WHERE id = $1

-- name: OF_ITEM
{ENTRY} FROM journal WHERE item = $1 ORDER BY id DESC LIMIT $2

-- name: IS_NOTED
SELECT EXISTS (SELECT FROM journal WHERE item = $1 AND once = $2)

-- name: UNMATCHED
-- The offset keeps PostgreSQL from walking the whole journal by its key instead.
{ENTRY}
FROM (SELECT * FROM journal
      WHERE action = 'unmatched_payment' AND after ->> 'payment' = $1
        AND before ->> 'order' IS NOT NULL OFFSET 0) AS unmatched
ORDER BY id LIMIT 1

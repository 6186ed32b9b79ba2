-- name: ITEM
SELECT {item_columns!} FROM items WHERE id = $1

-- name: SEGMENTS
SELECT {segment_columns!} FROM segments WHERE item = $1 ORDER BY 2

-- name: IN_TRANSIT
{MOVED_OUT}

-- fragment: MOVED_OUT
-- `out` implies not `done`. The second condition lets the planner use the index of open transfers.
SELECT coalesce(sum(moved), 0)::bigint FROM transfers
WHERE item = $1 AND state <> 'done' AND state = 'out'

-- name: COUNTS
-- Each part reads a small index.
SELECT ({MOVED_OUT}),
       (SELECT count(*) FROM orders
        WHERE state = 'rejected' AND id BETWEEN $2 AND $3 AND item = $1),
       (SELECT count(*) FROM orders
        WHERE state = 'refund_due' AND id BETWEEN $2 AND $3 AND item = $1)

-- name: RETURNING
SELECT segment::bigint, sum(quantity)::bigint FROM returns WHERE item = $1 GROUP BY segment

-- name: SUMS
SELECT segment::bigint, state, count(*), sum(quantity)::bigint FROM orders
WHERE id BETWEEN $2 AND $3 AND item = $1 GROUP BY segment, state

-- name: UNACCOUNTED
SELECT coalesce((SELECT stock FROM items WHERE id = $1), 0)
     - (SELECT coalesce(sum(allocated), 0)::bigint FROM segments WHERE item = $1)
     - ({MOVED_OUT})

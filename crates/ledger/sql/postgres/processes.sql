-- name: INSERT
INSERT INTO processes (id, locks, clock_at, roles, version, host, pid, started_at)
VALUES ($1, $2, to_timestamp($3::double precision / 1000), $4, $5, $6, $7,
        to_timestamp($8::double precision / 1000))
ON CONFLICT (id) DO UPDATE
SET locks = excluded.locks, clock_at = excluded.clock_at, seen_at = clock_timestamp()

-- name: UPDATE
UPDATE processes
SET locks = $2, clock_at = to_timestamp($3::double precision / 1000), seen_at = clock_timestamp()
WHERE id = $1

-- name: DELETE
DELETE FROM processes WHERE id = $1

-- name: SILENT
SELECT id FROM processes WHERE seen_at < now() - $1 * interval '1 millisecond'

-- name: PROCESSES
SELECT id, roles, version, host, pid, (extract(epoch FROM started_at) * 1000)::bigint AS started_ms,
       (extract(epoch FROM clock_timestamp() - seen_at) * 1000)::bigint AS silent_ms,
       (extract(epoch FROM clock_at - seen_at) * 1000)::bigint AS difference_ms, locks
FROM processes ORDER BY started_at, id

-- name: COUNTS
SELECT item, sum(arrived)::bigint AS arrived, sum(shed)::bigint AS shed,
       sum(sold_out)::bigint AS sold_out, sum(limited)::bigint AS limited,
       sum(not_open)::bigint AS not_open, sum(repeated)::bigint AS repeated,
       sum(held)::bigint AS held
FROM request_counts WHERE item = ANY($1) GROUP BY item

-- name: COUNT
-- In the order of the items, so that two transactions never wait for each other.
INSERT INTO request_counts
    (process, item, arrived, shed, sold_out, limited, not_open, repeated, held)
SELECT $1, * FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
                         $7::bigint[], $8::bigint[], $9::bigint[]) AS new (item)
ORDER BY item
ON CONFLICT (item, process) DO UPDATE
SET arrived = excluded.arrived, shed = excluded.shed, sold_out = excluded.sold_out,
    limited = excluded.limited, not_open = excluded.not_open, repeated = excluded.repeated,
    held = excluded.held

-- name: KEEP
WITH gone AS (DELETE FROM request_counts WHERE process = $1
    RETURNING item, arrived, shed, sold_out, limited, not_open, repeated, held)
INSERT INTO request_counts AS known
    (process, item, arrived, shed, sold_out, limited, not_open, repeated, held)
SELECT $2, * FROM gone ORDER BY item
ON CONFLICT (item, process) DO UPDATE
SET arrived = known.arrived + excluded.arrived, shed = known.shed + excluded.shed,
    sold_out = known.sold_out + excluded.sold_out, limited = known.limited + excluded.limited,
    not_open = known.not_open + excluded.not_open, repeated = known.repeated + excluded.repeated,
    held = known.held + excluded.held

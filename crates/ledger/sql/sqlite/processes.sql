-- name: INSERT
-- All processes are on one machine, so there is one clock: that of a process is the time at which
-- it was seen.
INSERT INTO processes (id, locks, seen_at, roles, version, host, pid, started_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (id) DO UPDATE SET locks = excluded.locks, seen_at = excluded.seen_at

-- name: UPDATE
UPDATE processes SET locks = ?2, seen_at = ?3 WHERE id = ?1

-- name: DELETE
DELETE FROM processes WHERE id = ?1

-- name: SILENT
SELECT id FROM processes WHERE seen_at < {now_ms!} - ?1

-- name: PROCESSES
SELECT id, roles, version, host, pid, started_at AS started_ms, {now_ms!} - seen_at AS silent_ms,
       CAST(NULL AS INTEGER) AS difference_ms, locks
FROM processes ORDER BY started_at, id

-- name: COUNTS
SELECT item, sum(arrived) AS arrived, sum(shed) AS shed, sum(sold_out) AS sold_out,
       sum(limited) AS limited, sum(not_open) AS not_open, sum(repeated) AS repeated,
       sum(held) AS held
FROM request_counts WHERE item IN (SELECT value FROM json_each(?1)) GROUP BY item

-- name: COUNT
INSERT INTO request_counts
    (process, item, arrived, shed, sold_out, limited, not_open, repeated, held)
SELECT ?1, value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5,
       value ->> 6, value ->> 7
FROM json_each(?2) WHERE true
ON CONFLICT (item, process) DO UPDATE
SET arrived = excluded.arrived, shed = excluded.shed, sold_out = excluded.sold_out,
    limited = excluded.limited, not_open = excluded.not_open, repeated = excluded.repeated,
    held = excluded.held

-- name: KEEP
INSERT INTO request_counts
    (process, item, arrived, shed, sold_out, limited, not_open, repeated, held)
SELECT ?2, item, arrived, shed, sold_out, limited, not_open, repeated, held
FROM request_counts WHERE process = ?1
ON CONFLICT (item, process) DO UPDATE
SET arrived = arrived + excluded.arrived, shed = shed + excluded.shed,
    sold_out = sold_out + excluded.sold_out, limited = limited + excluded.limited,
    not_open = not_open + excluded.not_open, repeated = repeated + excluded.repeated,
    held = held + excluded.held

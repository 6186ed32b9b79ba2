-- fragment: COLUMNS
id, url, to_json(kinds)::text AS kinds, secret,
(extract(epoch FROM created_at) * 1000)::bigint AS created_ms, xid::text::bigint AS xid, seq,
failures::bigint, (extract(epoch FROM failing_since) * 1000)::bigint AS failing_ms,
(extract(epoch FROM next_attempt_at) * 1000)::bigint AS next_ms, last_error,
(extract(epoch FROM disabled_at) * 1000)::bigint AS disabled_ms

-- name: ADD
-- Everything below `pg_snapshot_xmin` has happened before; what is still open is sent.
INSERT INTO webhooks (id, url, kinds, secret, xid, seq)
SELECT $1, $2, $3, $4, pg_snapshot_xmin(pg_current_snapshot()), 0
WHERE (SELECT count(*) FROM webhooks) < $5

-- name: WEBHOOKS
SELECT {COLUMNS} FROM webhooks ORDER BY created_at, id

-- name: REMOVE
DELETE FROM webhooks WHERE id = $1

-- name: ENABLE
UPDATE webhooks
SET disabled_at = NULL, failures = 0, failing_since = NULL, next_attempt_at = NULL
WHERE id = $1

-- name: LEASE
-- Leases go by the database's clock. $2: milliseconds.
WITH mine AS MATERIALIZED (SELECT id AS leased FROM webhooks
    WHERE disabled_at IS NULL AND (publisher IS NULL OR publisher = $1 OR leased_until < now())
    ORDER BY id FOR UPDATE SKIP LOCKED)
UPDATE webhooks SET publisher = $1, leased_until = now() + $2 * interval '1 millisecond'
FROM mine WHERE id = leased RETURNING {COLUMNS}

-- name: RELEASE
UPDATE webhooks SET publisher = NULL, leased_until = NULL WHERE publisher = $1

-- name: ADVANCE
-- $3: seq. $4: xid.
UPDATE webhooks
SET xid = $4::text::xid8, seq = $3, failures = 0, failing_since = NULL, next_attempt_at = NULL,
    last_error = NULL
WHERE id = $1 AND publisher = $2 AND (xid, seq) <= ($4::text::xid8, $3)

-- name: FAIL
-- A webhook without a next attempt is disabled.
UPDATE webhooks
SET failures = failures + 1, failing_since = coalesce(failing_since, now()), last_error = $3,
    next_attempt_at = to_timestamp($4::double precision / 1000),
    disabled_at = CASE WHEN $4::bigint IS NULL THEN now() END,
    publisher = CASE WHEN $4::bigint IS NULL THEN NULL ELSE publisher END,
    leased_until = CASE WHEN $4::bigint IS NULL THEN NULL ELSE leased_until END
WHERE id = $1 AND publisher = $2

-- fragment: COLUMNS
id, url, kinds, secret, created_at AS created_ms, 0 AS xid, seq, failures,
failing_since AS failing_ms, next_attempt_at AS next_ms, last_error, disabled_at AS disabled_ms

-- name: ADD
INSERT INTO webhooks (id, url, kinds, secret, seq)
SELECT ?1, ?2, ?3, ?4, coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0)
WHERE (SELECT count(*) FROM webhooks) < ?5

-- name: WEBHOOKS
SELECT {COLUMNS} FROM webhooks ORDER BY created_at, id

-- name: REMOVE
DELETE FROM webhooks WHERE id = ?1

-- name: ENABLE
UPDATE webhooks
SET disabled_at = NULL, failures = 0, failing_since = NULL, next_attempt_at = NULL
WHERE id = ?1

-- name: LEASE
-- All processes that open the file are on one machine, so leases go by its clock. ?2: milliseconds.
UPDATE webhooks SET publisher = ?1, leased_until = {now_ms!} + ?2
WHERE disabled_at IS NULL
  AND (publisher IS NULL OR publisher = ?1 OR leased_until < {now_ms!})
RETURNING {COLUMNS}

-- name: RELEASE
UPDATE webhooks SET publisher = NULL, leased_until = NULL WHERE publisher = ?1

-- name: ADVANCE
-- ?3: seq. Events have no xid here, so the value behind it is not read.
UPDATE webhooks
SET seq = ?3, failures = 0, failing_since = NULL, next_attempt_at = NULL, last_error = NULL
WHERE id = ?1 AND publisher = ?2 AND seq <= ?3

-- name: FAIL
-- A webhook without a next attempt is disabled.
UPDATE webhooks
SET failures = failures + 1, failing_since = coalesce(failing_since, {now_ms!}), last_error = ?3,
    next_attempt_at = ?4,
    disabled_at = CASE WHEN ?4 IS NULL THEN {now_ms!} END,
    publisher = CASE WHEN ?4 IS NULL THEN NULL ELSE publisher END,
    leased_until = CASE WHEN ?4 IS NULL THEN NULL ELSE leased_until END
WHERE id = ?1 AND publisher = ?2

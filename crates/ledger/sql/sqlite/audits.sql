-- name: LAST
SELECT good.at AS good_ms, good.revision, compared.at AS compared_ms,
       compared.revision AS compared_revision, failed.at AS failed_ms, failed.miscounted,
       failed.oversold
FROM (SELECT ?1 AS item) AS asked
LEFT JOIN good_audits AS good ON good.item = asked.item
LEFT JOIN failed_audits AS failed ON failed.item = asked.item
LEFT JOIN order_sums AS compared ON compared.item = asked.item

-- name: REFUNDS_DUE
SELECT item, count(*) FROM orders WHERE state = 'refund_due' GROUP BY item

-- name: FAILED_REFUNDS
-- It begins with the payments of which money is due: few of those whose refund has ever failed. With
-- `+` the id has no affinity, as the expression of the index has none.
SELECT item, count(*)
FROM (SELECT (SELECT journal.item FROM journal INDEXED BY journal_failed_refunds
              WHERE action = 'refund_failed' AND after ->> 'payment' = +owed.id
                AND after ->> 'refund' = owed.due_refund LIMIT 1) AS item
      FROM payments AS owed INDEXED BY payments_due
      WHERE owed.due_refund IS NOT NULL AND {is_owed!}) AS due
WHERE item IS NOT NULL GROUP BY item

-- name: NOTE_GOOD
INSERT INTO good_audits (item, at, revision)
VALUES (?1, ?2, ?3)
ON CONFLICT (item) DO UPDATE SET at = excluded.at, revision = excluded.revision
WHERE good_audits.at <= excluded.at

-- name: NOTE_FAILED
INSERT INTO failed_audits (item, at, miscounted, oversold)
VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (item) DO UPDATE
SET at = excluded.at, miscounted = excluded.miscounted, oversold = excluded.oversold
WHERE failed_audits.at <= excluded.at

-- name: SUMS
SELECT sums FROM order_sums WHERE item = ?1

-- name: NOTE_SUMS
INSERT INTO order_sums (item, at, revision, sums)
VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (item) DO UPDATE
SET at = excluded.at, revision = excluded.revision, sums = excluded.sums
WHERE order_sums.at <= excluded.at

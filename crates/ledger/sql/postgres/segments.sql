-- apart

-- name: INSERT
-- All segments of the item in one round trip.
INSERT INTO segments (item, segment, allocated, available)
SELECT $1, segment, share, share
FROM UNNEST($2::integer[], $3::bigint[]) AS new (segment, share)

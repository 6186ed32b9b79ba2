-- apart

-- fragment: NEW_ORDERS
INSERT INTO orders (id, item, segment, buyer, quantity, state, expires_at, created_at, price)
SELECT id, item, segment, buyer, quantity, 'held',
       to_timestamp(expires_ms::double precision / 1000),
       to_timestamp(created_ms::double precision / 1000), price
FROM UNNEST($1::uuid[], $2::text[], $3::integer[], $4::text[], $5::bigint[], $6::bigint[],
            $7::bigint[], $8::bigint[])
    AS new (id, item, segment, buyer, quantity, expires_ms, created_ms, price)

-- name: INSERT
-- Fails on a duplicate, together with the transaction. Duplicates are rare, and this takes two
-- thirds of the time of an insert that tolerates them; a savepoint would be another round trip.
{NEW_ORDERS}

-- name: INSERT_MISSING
-- Returns the ids only if some of them existed already.
WITH inserted AS ({NEW_ORDERS} ON CONFLICT (id) DO NOTHING RETURNING id)
SELECT count(*), CASE WHEN count(*) < $9 THEN coalesce(array_agg(id), '{}') END FROM inserted

-- name: COMPARE_AND_SET
-- The events come first, so that a transaction without any has the same statement.
WITH happened AS ({insert_events!})
UPDATE segments AS s
SET allocated = new.allocated, available = new.available, held = new.held,
    confirmed = new.confirmed, "returning" = new.back, checkpoint = new.checkpoint,
    anchor = new.anchor, fence = new.fence, version = s.version + 1
FROM UNNEST($8::text[], $9::integer[], $10::bigint[], $11::text[], $12::bigint[], $13::bigint[],
            $14::bigint[], $15::bigint[], $16::bigint[], $17::text[], $18::bigint[],
            $19::bigint[])
    WITH ORDINALITY AS new (item, segment, version, old_checkpoint, allocated, available, held,
                            confirmed, back, checkpoint, anchor, fence, place)
WHERE s.item = new.item AND s.segment = new.segment
  AND s.version = new.version AND s.checkpoint IS NOT DISTINCT FROM new.old_checkpoint
RETURNING new.place - 1

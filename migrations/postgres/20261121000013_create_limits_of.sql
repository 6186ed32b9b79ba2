-- The terms of those of these items that have a limit, read when nobody can be in between any more: whoever records orders of one is alone with them until
-- the end of the transaction, or shares them with all who need not be alone. A function, because each of its statements sees what was committed before it
-- began: in a single statement what is read would be older than the lock. In the order of the items, so that nobody waits in a circle.
CREATE FUNCTION limits_of(wanted text[], alone boolean[])
    RETURNS TABLE (id text, limit_per_buyer bigint, limit_before bigint, lowered_ms bigint, is_all_at_home boolean)
    LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    limited record;
BEGIN
    FOR limited IN
        SELECT of_item, is_alone, hashtextextended('stockade limit ' || of_item, 0) AS turn
        FROM UNNEST(wanted, alone) WITH ORDINALITY AS items_wanted (of_item, is_alone, place)
        JOIN items ON items.id = of_item
        WHERE items.limit_per_buyer IS NOT NULL OR items.limit_before IS NOT NULL
        ORDER BY place
    LOOP
        IF limited.is_alone THEN
            PERFORM pg_advisory_xact_lock(limited.turn);
        ELSE
            PERFORM pg_advisory_xact_lock_shared(limited.turn);
        END IF;
        RETURN QUERY
            SELECT items.id, items.limit_per_buyer, items.limit_before,
                   (extract(epoch FROM items.limit_lowered_at) * 1000)::bigint,
                   EXISTS (SELECT FROM all_at_home WHERE all_at_home.item = items.id)
            FROM items WHERE items.id = limited.of_item;
    END LOOP;
END $$;

-- Locks and returns the terms of those of these items that have a limit. Until the end of the
-- transaction, the recorder has an item's orders exclusively, or shares them with other recorders
-- that need no exclusive access. It is a function because each of its statements sees what was
-- committed before that statement began: a single statement would read rows from before it got the
-- lock. It locks the items in order, so that no cycle of lock waits can form.
CREATE FUNCTION limits_of(wanted text[], alone boolean[])
    RETURNS TABLE (id text, limit_per_buyer bigint, limit_before bigint, lowered_ms bigint, is_without_spillover boolean)
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
                   EXISTS (SELECT FROM items_without_spillover WHERE items_without_spillover.item = items.id)
            FROM items WHERE items.id = limited.of_item;
    END LOOP;
END $$;

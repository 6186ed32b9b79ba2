-- Readers go by (xid, seq). The id of the writing transaction alone is no order in which events can be
-- told: a transaction that has its id early, because it locked a cart, may wait for one with a later
-- id, and then change what that one has committed. Its event would come before the one that it
-- depends on.
--
-- So the position of an event is also not below the latest transaction that has ended. What the
-- writer has seen has ended, and has a lower position. A position is never below the id of its
-- transaction, so no row can appear below `pg_snapshot_xmin`.
--
-- The function is volatile: it sees what has ended since its statement began, because the statement
-- may have waited for a lock.
CREATE FUNCTION event_position() RETURNS xid8 LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN greatest(
        pg_current_xact_id(),
        (pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1)::text::xid8
    );
END
$$;

ALTER TABLE events ALTER COLUMN xid SET DEFAULT event_position();

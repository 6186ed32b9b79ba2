-- Units on the move: between segments, from outside (no `from_segment`: new units), or to the
-- outside (no `to_segment`). `planned`: the units have not left. `out`: they have left and are in
-- no segment. `done`: they have arrived, or have left the stock. No foreign key to segments: its
-- check would wait for the recorder that has locked the segment.
CREATE TABLE transfers (
    id           uuid        NOT NULL,
    item         text        NOT NULL,
    from_segment integer,
    to_segment   integer,
    quantity     bigint      NOT NULL,
    -- Number of units that have left: possibly fewer than requested, or none.
    moved        bigint      NOT NULL,
    state        text        NOT NULL,
    -- The fencing token of the planner, if the transfer was planned under the item's lock.
    token        bigint,
    since        timestamptz NOT NULL,
    CONSTRAINT transfers_pkey PRIMARY KEY (id),
    CONSTRAINT transfers_item_fkey FOREIGN KEY (item) REFERENCES items (id),
    CONSTRAINT transfers_quantity_positive CHECK (quantity > 0),
    CONSTRAINT transfers_moved_within_quantity CHECK (moved BETWEEN 0 AND quantity),
    CONSTRAINT transfers_planned_moved_nothing CHECK (state <> 'planned' OR moved = 0),
    CONSTRAINT transfers_have_an_end CHECK (from_segment IS NOT NULL OR to_segment IS NOT NULL),
    CONSTRAINT transfers_between_two CHECK (from_segment <> to_segment),
    CONSTRAINT transfers_new_units_are_out CHECK (from_segment IS NOT NULL OR state <> 'planned'),
    CONSTRAINT transfers_state_known CHECK (state IN ('planned', 'out', 'done'))
);

-- Open transfers; the table also keeps all finished ones.
CREATE INDEX transfers_open ON transfers (item, since) WHERE state <> 'done';

-- Units on the move: from segment to segment, from outside (no `from_segment`: new units), or to the outside (no `to_segment`).
-- `planned`: their units are where they were. `out`: they have left and are in no segment. `done`: they have arrived, or are not part of the stock any more.
-- No foreign key to segments: its check would wait for whoever records the segment.
CREATE TABLE transfers (
    id           uuid        NOT NULL,
    item         text        NOT NULL,
    from_segment integer,
    to_segment   integer,
    asked        bigint      NOT NULL,
    -- How many left: perhaps fewer than were asked for, perhaps none.
    moved        bigint      NOT NULL,
    state        text        NOT NULL,
    -- Of whoever planned it, if that was under the item's lock.
    token        bigint,
    since        timestamptz NOT NULL,
    CONSTRAINT transfers_pkey PRIMARY KEY (id),
    CONSTRAINT transfers_item_fkey FOREIGN KEY (item) REFERENCES items (id),
    CONSTRAINT transfers_asked_positive CHECK (asked > 0),
    CONSTRAINT transfers_moved_of_asked CHECK (moved BETWEEN 0 AND asked),
    CONSTRAINT transfers_planned_moved_nothing CHECK (state <> 'planned' OR moved = 0),
    CONSTRAINT transfers_have_an_end CHECK (from_segment IS NOT NULL OR to_segment IS NOT NULL),
    CONSTRAINT transfers_between_two CHECK (from_segment <> to_segment),
    CONSTRAINT transfers_new_units_are_out CHECK (from_segment IS NOT NULL OR state <> 'planned'),
    CONSTRAINT transfers_state_known CHECK (state IN ('planned', 'out', 'done'))
);

-- What is still to be done; all that was ever done stays.
CREATE INDEX transfers_open ON transfers (item, since) WHERE state <> 'done';

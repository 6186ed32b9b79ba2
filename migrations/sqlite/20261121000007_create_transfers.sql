-- Units on the move: from segment to segment, from outside (no `from_segment`: new units), or to the outside (no `to_segment`).
-- `planned`: their units are where they were. `out`: they have left and are in no segment. `done`: they have arrived, or are not part of the stock any more.
-- `since` is in milliseconds since 1970.
CREATE TABLE transfers (
    id           BLOB    NOT NULL,
    item         TEXT    NOT NULL,
    from_segment INTEGER,
    to_segment   INTEGER,
    asked        INTEGER NOT NULL,
    -- How many left: perhaps fewer than were asked for, perhaps none.
    moved        INTEGER NOT NULL,
    state        TEXT    NOT NULL,
    -- Of whoever planned it, if that was under the item's lock.
    token        INTEGER,
    since        INTEGER NOT NULL,
    CONSTRAINT transfers_pkey PRIMARY KEY (id),
    CONSTRAINT transfers_id_is_a_uuid CHECK (length(id) = 16),
    CONSTRAINT transfers_item_fkey FOREIGN KEY (item) REFERENCES items (id),
    CONSTRAINT transfers_asked_positive CHECK (asked > 0),
    CONSTRAINT transfers_moved_of_asked CHECK (moved BETWEEN 0 AND asked),
    CONSTRAINT transfers_planned_moved_nothing CHECK (state <> 'planned' OR moved = 0),
    CONSTRAINT transfers_have_an_end CHECK (from_segment IS NOT NULL OR to_segment IS NOT NULL),
    CONSTRAINT transfers_between_two CHECK (from_segment <> to_segment),
    CONSTRAINT transfers_new_units_are_out CHECK (from_segment IS NOT NULL OR state <> 'planned'),
    CONSTRAINT transfers_state_known CHECK (state IN ('planned', 'out', 'done'))
) STRICT, WITHOUT ROWID;

-- What is still to be done; all that was ever done stays.
CREATE INDEX transfers_open ON transfers (item, since) WHERE state <> 'done';

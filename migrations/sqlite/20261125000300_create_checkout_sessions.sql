-- The checkout sessions at the payment provider that an order or a cart has named. Only the end of the
-- one with the highest place cancels it. A session keeps its place: a late repeat of an older naming does
-- not bring that session back. A session is named in the transaction that raises the version of its order
-- or cart, so a cancellation that was decided on an older session finds another version. Times are in
-- milliseconds since 1970.
CREATE TABLE checkout_sessions (
    -- The id of the order or the cart.
    target   BLOB    NOT NULL,
    session  TEXT    NOT NULL,
    place    INTEGER NOT NULL,
    named_at INTEGER NOT NULL,
    CONSTRAINT checkout_sessions_pkey PRIMARY KEY (target, session),
    CONSTRAINT checkout_sessions_place_is_one UNIQUE (target, place)
) STRICT, WITHOUT ROWID;

-- The checkout session at the payment provider that an order or a cart has named last: the only one
-- whose end cancels it. A session is named in the transaction that raises the version of its order or
-- cart, so a cancellation that was decided on an older session finds another version. Times are in
-- milliseconds since 1970.
CREATE TABLE checkout_sessions (
    -- The id of the order or the cart.
    target   BLOB    NOT NULL,
    session  TEXT    NOT NULL,
    named_at INTEGER NOT NULL,
    CONSTRAINT checkout_sessions_pkey PRIMARY KEY (target)
) STRICT, WITHOUT ROWID;

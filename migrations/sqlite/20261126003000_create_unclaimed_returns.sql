-- Payments that the provider has returned before anything was known of them. Such a payment has a row in
-- `payments`, too, with a nil `order_id`: it pays nothing if it is reported later. Its row here goes when
-- the payment gets a payer. Both rows are deleted after 30 days: most of these payments are those of
-- another shop with the same account. Times are in milliseconds since 1970.
CREATE TABLE unclaimed_returns (
    payment TEXT    NOT NULL,
    since   INTEGER NOT NULL,
    CONSTRAINT unclaimed_returns_pkey PRIMARY KEY (payment)
) STRICT, WITHOUT ROWID;

CREATE INDEX unclaimed_returns_since ON unclaimed_returns (since);

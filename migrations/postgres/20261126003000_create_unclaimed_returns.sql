-- Payments that the provider has returned before anything was known of them. Such a payment has a row in
-- `payments`, too, with a nil `order_id`: it pays nothing if it is reported later. Its row here goes when
-- the payment gets a payer. Both rows are deleted after 30 days: most of these payments are those of
-- another shop with the same account.
CREATE TABLE unclaimed_returns (
    payment text        NOT NULL,
    since   timestamptz NOT NULL,
    CONSTRAINT unclaimed_returns_pkey PRIMARY KEY (payment)
);

CREATE INDEX unclaimed_returns_since ON unclaimed_returns (since);

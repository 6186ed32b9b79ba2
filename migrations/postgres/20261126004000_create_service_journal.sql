-- What admins do that belongs to no item: webhooks, and erasures of buyers. Append-only.
CREATE TABLE service_journal (
    id      bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    at      timestamptz NOT NULL,
    actor   text        NOT NULL,
    action  text        NOT NULL,
    -- The id of a webhook. An erasure has none: the journal must not name the buyer.
    subject text,
    before  jsonb       NOT NULL,
    after   jsonb       NOT NULL,
    CONSTRAINT service_journal_pkey PRIMARY KEY (id)
);

-- What admins do that belongs to no item: webhooks, and erasures of buyers. Append-only. `at` is in
-- milliseconds since 1970.
CREATE TABLE service_journal (
    id      INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    actor   TEXT    NOT NULL,
    action  TEXT    NOT NULL,
    -- The id of a webhook. An erasure has none: the journal must not name the buyer.
    subject TEXT,
    before  TEXT    NOT NULL,
    after   TEXT    NOT NULL,
    CONSTRAINT service_journal_pkey PRIMARY KEY (id AUTOINCREMENT),
    CONSTRAINT service_journal_before_is_json CHECK (json_valid(before)),
    CONSTRAINT service_journal_after_is_json CHECK (json_valid(after))
) STRICT;

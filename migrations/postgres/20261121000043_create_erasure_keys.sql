-- The key of the hash that replaces the name of an erased buyer: random, and made with the first
-- erasure. The same buyer always gets the same hash. Without the key nothing leads from a hash to a
-- name.
CREATE TABLE erasure_keys (
    id  smallint NOT NULL,
    key bytea    NOT NULL,
    CONSTRAINT erasure_keys_pkey PRIMARY KEY (id),
    CONSTRAINT erasure_keys_has_one_row CHECK (id = 1),
    CONSTRAINT erasure_keys_has_32_bytes CHECK (length(key) = 32)
);

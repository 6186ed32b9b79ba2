-- A random name that follows from nothing replaces the name of an erased buyer now. Earlier releases
-- made it with a key that this table kept, so the key and a list of candidate names led back to the
-- buyer. Without the key the older names follow from nothing, too. A process of the release before
-- makes another key with its next erasure; the next erasure of this release deletes that one.
DELETE FROM erasure_keys;

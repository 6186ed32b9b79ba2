-- One more level of durability.
ALTER TABLE items DROP CONSTRAINT items_durability_known;
ALTER TABLE items ADD CONSTRAINT items_durability_known CHECK (durability IN ('recorded', 'accepted', 'replicated'));

-- What a settled payment has paid: the order that a drop has deleted, of a cart the first of its lines. A refund
-- of the payment may fail afterwards, and its money is due then. Both are NULL for a drop by a release before.
ALTER TABLE payments ADD COLUMN dropped_order BLOB;
ALTER TABLE payments ADD COLUMN dropped_item TEXT;

-- What became of the money of a payment. `returned_at` is when the provider reported that all of it was
-- returned, or when an admin noted it; a payment that was returned pays nothing any more. `due_refund`
-- names the failed refund because of which money is due again. A payment that nothing has taken has a
-- row as well once it was returned: `order_id` is then what it was reported for. Times are in
-- milliseconds since 1970.
ALTER TABLE payments ADD COLUMN returned_at INTEGER;

ALTER TABLE payments ADD COLUMN due_refund TEXT;

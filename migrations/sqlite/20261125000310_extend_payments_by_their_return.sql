-- What became of the money of a payment. `returned_at` is when the provider reported that all of it was
-- returned, or when an admin noted it; a payment that was returned pays nothing any more. `due_refund`
-- names the latest failed refund because of which money is due again, and `due_amount` is all that is due.
-- `is_settled`: a purge has deleted the order or cart that it has paid. A payment that nothing has taken
-- has a row as well once it was returned: `order_id` is then what it was reported for. Times are in
-- milliseconds since 1970.
ALTER TABLE payments ADD COLUMN returned_at INTEGER;

ALTER TABLE payments ADD COLUMN due_refund TEXT;

ALTER TABLE payments ADD COLUMN due_amount INTEGER;

ALTER TABLE payments ADD COLUMN is_settled INTEGER NOT NULL DEFAULT 0;

-- The payments of which money is due are few.
CREATE INDEX payments_due ON payments (id) WHERE due_refund IS NOT NULL;

-- A release before this one has noted returns in the journal alone. What an admin has returned pays
-- nothing any more, unless its order or cart has accepted it since.
INSERT INTO payments (id, order_id, returned_at)
SELECT after ->> 'payment', unhex(replace(before ->> 'order', '-', '')), 0
FROM journal
WHERE action = 'unmatched_payment' AND after ->> 'payment' IS NOT NULL AND unhex(replace(before ->> 'order', '-', '')) IS NOT NULL
  AND EXISTS (SELECT 1 FROM journal AS done WHERE done.item = journal.item AND done.once = 'payment_refunded ' || journal.id)
  AND NOT EXISTS (SELECT 1 FROM payments AS paid JOIN orders ON orders.id = paid.order_id AND orders.payment = paid.id
                  WHERE paid.id = journal.after ->> 'payment')
  AND NOT EXISTS (SELECT 1 FROM payments AS paid JOIN carts ON carts.id = paid.order_id AND carts.payment = paid.id
                  WHERE paid.id = journal.after ->> 'payment')
ORDER BY id
ON CONFLICT (id) DO UPDATE SET returned_at = excluded.returned_at;

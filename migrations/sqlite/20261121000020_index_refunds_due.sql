-- The money that must be returned, for a list that reads page by page: orders in the state
-- `refund_due`, and payments that no order could take. Both indexes stay small. An order leaves its
-- index with the state, and few payments match no order.
CREATE INDEX orders_refund_due ON orders (id) WHERE state = 'refund_due';

CREATE INDEX journal_unmatched_payments ON journal (id) WHERE action = 'unmatched_payment';

-- no-transaction
-- The entries of failed refunds by their payment. Reconcilers look once a minute whose money is due: they begin
-- with the payments of which money is due, and do not read what was returned long ago.
--
-- It is built beside a sale, so it cannot be part of a transaction.
CREATE INDEX CONCURRENTLY IF NOT EXISTS journal_failed_refunds ON journal ((after ->> 'payment')) WHERE action = 'refund_failed';

-- The entries of failed refunds by their payment. Reconcilers look once a minute whose money is due: they begin
-- with the payments of which money is due, and do not read what was returned long ago.
CREATE INDEX journal_failed_refunds ON journal (after ->> 'payment') WHERE action = 'refund_failed';

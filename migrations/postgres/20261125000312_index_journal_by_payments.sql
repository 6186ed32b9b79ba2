-- Entries because of which a payment may have to be returned, for a list that reads page by page: no
-- order could take the payment, or its refund has failed. The older index of unmatched payments alone
-- stays for processes of the release before.
CREATE INDEX journal_payments_due ON journal (id) WHERE action IN ('unmatched_payment', 'refund_failed');

-- What a payment was reported for, when its refund names neither order nor cart.
CREATE INDEX journal_unmatched_of_payment ON journal ((after ->> 'payment')) WHERE action = 'unmatched_payment';

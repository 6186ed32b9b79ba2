-- One concept, one name: the journal, the list of money to return and the glossary say "unmatched".
UPDATE events SET kind = 'payment.unmatched' WHERE kind = 'payment.stray';
UPDATE webhooks SET kinds = array_replace(kinds, 'payment.stray', 'payment.unmatched')
WHERE 'payment.stray' = ANY (kinds);

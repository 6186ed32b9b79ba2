-- A drop by a release before `is_settled` has deleted orders and carts, and has not marked the payments
-- that had paid them. Such a payment may have been reported with another amount first, and that entry is
-- listed as money that is due. An order that was held or had expired then has accepted its payment since:
-- the payment is bound to it. An entry of an order that could not accept it any more stays listed.
--
-- It reads the entries of unmatched payments by their index, and no other payments.
UPDATE payments SET is_settled = true
FROM journal
WHERE journal.action = 'unmatched_payment' AND journal.before ->> 'state' IN ('held', 'expired')
  AND payments.id = journal.after ->> 'payment'
  AND payments.order_id::text IN (journal.before ->> 'order', journal.before ->> 'cart')
  AND NOT payments.is_settled AND payments.returned_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM orders WHERE orders.id = payments.order_id)
  AND NOT EXISTS (SELECT 1 FROM carts WHERE carts.id = payments.order_id);

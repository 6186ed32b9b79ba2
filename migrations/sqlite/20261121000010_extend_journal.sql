-- Name of an event that is journalled once, however often it is reported: a provider repeats its
-- report of a payment that no order can take.
ALTER TABLE journal ADD COLUMN once TEXT;

CREATE UNIQUE INDEX journal_once ON journal (item, once) WHERE once IS NOT NULL;

-- What is to be told once however often it happens says so here: a payment that nobody can take is reported again and again.
ALTER TABLE journal ADD COLUMN once text;

CREATE UNIQUE INDEX journal_once ON journal (item, once) WHERE once IS NOT NULL;

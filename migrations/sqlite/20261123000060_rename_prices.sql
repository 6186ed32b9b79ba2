-- A price is in the currency's smallest unit, which is not always a cent.
ALTER TABLE items RENAME COLUMN price_cents TO price;

UPDATE items SET as_created =
    json_set(json_remove(as_created, '$.price_cents'), '$.price', as_created ->> '$.price_cents');

-- A price is in the currency's smallest unit, which is not always a cent.
ALTER TABLE items RENAME COLUMN price_cents TO price;

UPDATE items SET as_created =
    (as_created - 'price_cents') || jsonb_build_object('price', as_created -> 'price_cents');

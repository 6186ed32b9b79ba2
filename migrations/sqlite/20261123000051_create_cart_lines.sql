-- The orders of carts. They are written with the cart, before the orders exist, and never change.
CREATE TABLE cart_lines (
    order_id BLOB    NOT NULL,
    cart     BLOB    NOT NULL,
    place    INTEGER NOT NULL,
    item     TEXT    NOT NULL,
    quantity INTEGER NOT NULL,
    CONSTRAINT cart_lines_pkey PRIMARY KEY (order_id),
    CONSTRAINT cart_lines_place_once UNIQUE (cart, place),
    CONSTRAINT cart_lines_cart_fkey FOREIGN KEY (cart) REFERENCES carts (id),
    CONSTRAINT cart_lines_quantity_positive CHECK (quantity > 0)
) STRICT, WITHOUT ROWID;

// What some models have besides the fields of the description.

/** An event, which belongs to orders, to a cart or to an item. */
export interface EventParts {
  /** The type without `stockade.`. */
  kind: string;
  /** The orders that it happened to. */
  orders: string[];
  /** The cart that it happened to: `data.cart` of a `cart.` event. */
  cart?: string;
}

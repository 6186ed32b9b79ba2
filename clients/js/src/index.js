// The JavaScript client of Stockade's HTTP API: plain ES modules, without dependencies, for Node 18
// and later. The README has the three rules.

export { OrderBatcher } from './batch.js';
export { newCart } from './carts.js';
export { Admin, Buyer, Client, PaymentProvider } from './client.js';
export {
  Contract,
  InvalidInput,
  NoLongerHeld,
  OutcomeUnknown,
  Refused,
  StockadeError,
} from './errors.js';
export { hasUnits, newOrder } from './models.js';
export { InvalidSignature, Webhook, mintBuyer, signPayment } from './signatures.js';

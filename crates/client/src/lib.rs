//! The Rust client of Stockade's HTTP API.
//!
//! Three types make the calls, one for each kind of caller: a [`Buyer`] places, shows and cancels
//! orders, a [`PaymentProvider`] reports payments, and an [`Admin`] manages items, refunds orders
//! and reads audits. All three share a [`Client`], which knows where the service is and how to
//! retry.
//!
//! ```no_run
//! # async fn example() -> Result<(), client::Error> {
//! use client::{Client, NewOrder, ProblemCode, Token};
//!
//! let client = Client::new("http://127.0.0.1:8080")?;
//! let buyer = client.buyer(Token::bearer("the JWT that your shop issued to this buyer")?);
//!
//! let order = NewOrder::new("maotai", 1);
//! match buyer.place(&order).await {
//!     Ok(placed) => println!("order {} is {}", placed.order.id, placed.order.state),
//!     Err(error) if error.is(ProblemCode::SoldOut) => println!("sold out"),
//!     Err(error) => return Err(error),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Rule 1: the same key until the outcome is known
//!
//! A request can succeed while its response is lost. The service therefore identifies an order by
//! the buyer, the item and the idempotency key: however often a request arrives, it places at most
//! one order. A [`NewOrder`] contains its key, so **create it once and place that same value
//! again** until the outcome is known. A new `NewOrder` has a new key, and is a second order. The
//! same holds for a [`NewCart`].
//!
//! ```
//! use client::NewOrder;
//!
//! let order = NewOrder::new("maotai", 1);
//! assert_eq!(order.key(), order.clone().key(), "a copy is the same order");
//! assert_ne!(order.key(), NewOrder::new("maotai", 1).key(), "this one is another order");
//! ```
//!
//! Store the key before you send the request if the order must survive a crash of your process. The
//! client itself repeats a request with the same key for as long as its [`RetryPolicy`] allows.
//!
//! # Rule 2: an unknown outcome is never a refusal
//!
//! A timeout, a broken connection, or a response 503 `outcome_unknown` does not say that the order
//! was not placed. [`Error::OutcomeUnknown`] reports it after the last retry. Do not tell the buyer
//! "sold out", do not place another order instead, and do not forget the key: repeat the request
//! later, with the same key. Only [`Error::Refused`] means that nothing was reserved.
//!
//! After an attempt that was lost, a 401, 403, 404 or 429, or the page of a proxy, says nothing
//! about that attempt. The client keeps the outcome unknown until the service itself decides. A
//! later call with the same key knows nothing of the earlier one, so ask [`Error::settles_key`]
//! there: false means that the key is still open. A refusal that is not [final](Error::is_final)
//! left no record, as most `sold_out` do: it counts unless a call with the key has ended unknown
//! less than 10 seconds ago.
//!
//! ```no_run
//! # async fn example(buyer: &client::Buyer, order: &client::NewOrder) {
//! use client::Error;
//!
//! match buyer.place(order).await {
//!     Ok(_) => { /* the buyer holds the units, or has paid for them */ }
//!     Err(Error::NoLongerHeld(ended)) => println!("{ended}"), // a new attempt needs a new key
//!     Err(Error::Refused(problem)) => println!("no units: {}", problem.detail),
//!     Err(error) if error.is_outcome_unknown() => { /* keep the key, and repeat later */ }
//!     Err(error) => println!("a bug, here or there: {error}"),
//! }
//! # }
//! ```
//!
//! # Rule 3: verify before you trust
//!
//! A success status alone proves little. The client checks that the order in a response is the one
//! that was requested; a response that does not match is [`Error::Contract`]. An order that has
//! ended since an earlier request placed it is [`Error::NoLongerHeld`], never a success. Three
//! checks remain yours:
//!
//! * [`Buyer::order`] shows the order as it is now. [`OrderState::has_units`] tells whether its
//!   units still belong to the buyer.
//! * A response 202 comes before the ledger has the order. [`Placed::recorded`] is false then, and
//!   a crash of Redis can still lose it. Read the order with [`Buyer::order`] before you ship.
//! * The service sells concurrently. [`Admin::audit`] proves for an item that every unit is
//!   accounted for.
//!
//! # Many buyers
//!
//! A shop's backend that orders for its buyers uses an [`OrderBatcher`]: it sends the orders that
//! arrive together with one request, and keeps rule 1 for each of them.
//!
//! # Webhooks
//!
//! A [`Webhook`] verifies that a message comes from Stockade, and returns its [`Event`]. Give it
//! the raw body, and remember [`Event::id`]: an event may come again.
//!
//! This crate depends on no other crate of Stockade. Load tests and fault injection judge the
//! service through it, and a shared bug could not hide from them.

mod admin;
mod attempts;
mod audit;
mod batch;
mod buyer;
mod cart;
mod client;
mod ended;
mod error;
mod hold;
mod item;
mod key;
mod list;
mod models;
mod order;
mod payment;
mod problem;
mod request;
mod response;
mod retry;
mod signature;
mod stock;
mod token;
mod webhook;

pub use admin::Admin;
pub use batch::OrderBatcher;
pub use buyer::Buyer;
pub use cart::{CartAmount, NewCart, PlacedCart};
pub use client::{Client, ClientBuilder, Sent};
pub use ended::Ended;
pub use error::{Error, UnknownCause};
pub use key::IdempotencyKey;
pub use list::{Cursor, Page, PageRequest};
pub use models::{
    AmountCheck, Audit, BuyerOrder, Cart, CartLine, CartState, Durability, Event, HoldChange, Item,
    ItemPatch, ItemState, ItemWave, Items, JournalEntry, ListedItem, ListedOrder, NewItem, Order,
    OrderState, OrdersChecked, OrdersFault, Problem, RefundDue, RefundReason, Segment,
    SegmentAudit, ServiceJournalEntry, Wave,
};
pub use order::{NewOrder, Placed};
pub use payment::{CartPayment, OfCart, OfOrder, Payment, PaymentProvider};
pub use problem::ProblemCode;
pub use request::Request;
pub use response::{Content, Response};
pub use retry::RetryPolicy;
pub use signature::PaymentKey;
pub use stock::{StockChange, StockChanged};
pub use token::Token;
pub use webhook::{InvalidSignature, Webhook};

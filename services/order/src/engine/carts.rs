//! Carts: orders of several items that a buyer gets all or none of.
//!
//! A cart is a saga. Its row comes first, then its lines take their units one after the other, by
//! item: of carts that want the same last units, the one that got the first of them goes on. When
//! the ledger has recorded every line, one compare-and-set makes the cart `held`. If a line is
//! refused, one makes it `failed`, and what the others took goes back. Only one of the two can
//! happen, by any of these: this request, a repeat at another instance, or a reconciler when the
//! cart's deadline has passed.
//!
//! A cart that is known to be refused gets no row (`carts/foreseen.rs`).
//!
//! From then on the cart alone changes its lines, in one transaction.

mod foreseen;
mod hold;
mod late;
mod life;
mod line;
mod shares;
mod total;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use domain::{
    BuyerId, Cart, CartId, CartLine, CartRefusal, CartState, IdempotencyKey, ItemId, Order,
    OrderId, OrderState, Quantity, RefusalReason,
};
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use ledger::{CartStep, CreatedCart, SteppedCart};
use stock::{Acknowledge, Outcome, Reservation, StockError};
use tokio::time::{Instant, timeout_at};

use super::{
    Engine, EngineError, KnownItem,
    orders::{POLL_PAUSE_MAX, POLL_PAUSE_MIN},
};
use foreseen::ForeseenLines;
pub use line::LineReturned;
pub use total::Total;

/// How long a cart that fails waits for the lines that it took to be recorded, before it says so:
/// usually one transaction then releases all of them.
const RECORDED_SOON: Duration = Duration::from_millis(30);

/// What a cart that has failed leaves of its time limit for the answer.
const ANSWER_TIME: Duration = Duration::from_millis(50);

/// A cart to be placed.
#[derive(Debug, Clone)]
pub struct CartPlacement {
    /// The buyer.
    pub buyer: BuyerId,
    /// Identifies the cart among the buyer's carts.
    pub key: IdempotencyKey,
    /// Items, each once, and numbers of units.
    pub lines: Vec<(ItemId, Quantity)>,
    /// The admin who places it for the buyer. `None`: the buyer does.
    pub placer: Option<Arc<str>>,
    /// What the shop says that it costs. `None`: the price of its lines.
    pub total: Option<Total>,
}

/// Result of placing a cart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CartPlaced {
    /// There is no such item. Nothing was changed.
    ItemNotFound {
        /// Index of the line.
        line: usize,
    },
    /// The item has another currency than the first one. Nothing was changed.
    OtherCurrency {
        /// Index of the line.
        line: usize,
        /// The currency of the first line.
        expected: String,
    },
    /// The quantity is above the item's `max_per_order`. Nothing was changed.
    TooManyUnits {
        /// Index of the line.
        line: usize,
        /// Units that one order of the item may have.
        max: Quantity,
    },
    /// The lines up to this one cost more than a cart may. Nothing was changed.
    TooDear {
        /// Index of the line.
        line: usize,
    },
    /// Its total is less than this price of its lines, or unchecked, and a buyer places it. Nothing
    /// was changed.
    TooCheap {
        /// What the lines cost.
        price: u64,
    },
    /// A line would be refused, so the cart was not made. Nothing was written: a repeat is decided
    /// anew.
    Foreseen {
        /// Index of the line.
        line: usize,
        /// Why it would be refused.
        reason: RefusalReason,
    },
    /// The key belongs to a cart with other lines or another total. Nothing was changed.
    KeyReused,
    /// A line was refused, and no line has units. It is final for this key.
    Refused(CartRefusal),
    /// The cart is placed.
    Cart {
        /// The cart: `held`, unless it was placed before and has changed since.
        cart: Cart,
        /// Whether an earlier request placed it.
        replayed: bool,
    },
}

/// What became of a line on its way to its units.
enum Line {
    Taken,
    Refused(RefusalReason),
    /// Its cart has changed meanwhile.
    Overtaken,
}

impl Engine {
    /// Places the cart. The same buyer and key always mean the same cart, at every instance and for
    /// every repeat.
    pub async fn place_cart(&self, placement: CartPlacement) -> Result<CartPlaced, EngineError> {
        let until = Instant::now() + self.settings.order_timeout;
        self.with_deadline(until, self.place_cart_until(placement, until))
            .await
    }

    async fn place_cart_until(
        &self,
        placement: CartPlacement,
        until: Instant,
    ) -> Result<CartPlaced, EngineError> {
        let items = self.items_of(&placement.lines).await;
        let items = match items.map_err(|error| self.nothing_was_reserved(error))? {
            Ok(items) => items,
            Err(refused) => return Ok(refused),
        };
        let mut new = self.new_cart(&placement, &items);
        let foreseen = self.foresee_lines(&new, &items).await?;
        let refused = self.price_cart(&mut new, &placement, &items, &foreseen);
        let refused = refused.await;
        let is_known = match refused.map_err(|error| self.nothing_was_reserved(error))? {
            None => false,
            // A cart that the ledger has gets its recorded answer, whatever is known against a new
            // one.
            Some(_) if self.cart_look_ups.has(self, new.id).await? => true,
            Some(refused) => {
                if let CartPlaced::Foreseen { line, reason } = refused {
                    items[line].requests.refuse(reason);
                }
                return Ok(refused);
            }
        };
        if let Some(admin) = &placement.placer {
            let noted = self.note_placers(&new, admin).await;
            noted.map_err(|error| self.nothing_was_reserved(error))?;
        }
        let created = match is_known {
            true => CreatedCart::Known(self.read_cart(new.id).await?),
            false => self.create_cart(&new).await?,
        };
        let (mut cart, replayed) = match created {
            CreatedCart::New(cart) => (cart, false),
            CreatedCart::Known(cart)
                if has_same_lines(&cart, &new) && placement.has_same_total(&cart, &items) =>
            {
                (cart, true)
            }
            CreatedCart::Known(_) => return Ok(CartPlaced::KeyReused),
        };
        self.misses.end(cart.id.as_uuid());
        let mut may_place = !replayed;
        while cart.state == CartState::Placing {
            if !may_place {
                may_place = self.ledger.take_over_cart(cart.id).await?;
                cart = self.read_cart(cart.id).await?;
                continue;
            }
            cart = self.place_lines(cart, until).await?;
            may_place = false;
        }
        Ok(match cart.refusal {
            Some(refusal) => CartPlaced::Refused(refusal),
            None => CartPlaced::Cart { cart, replayed },
        })
    }

    /// The items of the lines, or why there can be no such cart.
    async fn items_of(
        &self,
        lines: &[(ItemId, Quantity)],
    ) -> Result<Result<Vec<Arc<KnownItem>>, CartPlaced>, EngineError> {
        let mut items: Vec<Arc<KnownItem>> = Vec::with_capacity(lines.len());
        for (line, (id, quantity)) in lines.iter().enumerate() {
            let Some(known) = self.known(id).await? else {
                return Ok(Err(CartPlaced::ItemNotFound { line }));
            };
            let first = items.first().unwrap_or(&known);
            if first.item.currency != known.item.currency {
                let expected = first.item.currency.clone();
                return Ok(Err(CartPlaced::OtherCurrency { line, expected }));
            }
            if let Some(max) = known.item.max_per_order.filter(|max| quantity > max) {
                return Ok(Err(CartPlaced::TooManyUnits { line, max }));
            }
            items.push(known);
        }
        Ok(Ok(items))
    }

    /// Sets what the cart costs. Returns why there can be no such cart, if it is new.
    async fn price_cart(
        &self,
        cart: &mut Cart,
        placement: &CartPlacement,
        items: &[Arc<KnownItem>],
        foreseen: &ForeseenLines,
    ) -> Result<Option<CartPlaced>, EngineError> {
        let refused = foreseen.refusal;
        let refused = refused.map(|(line, reason)| CartPlaced::Foreseen { line, reason });
        if foreseen.prices.is_empty() {
            return Ok(refused);
        }
        let mut prices = Vec::with_capacity(items.len());
        for (known, seen) in items.iter().zip(&foreseen.prices) {
            prices.push(self.unit_price(known, *seen).await?);
        }
        match placement.price(&prices) {
            Ok(price) => {
                (cart.amount, cart.price) = (placement.amount(price), Some(price));
                Ok(refused)
            }
            refused => Ok(refused.err()),
        }
    }

    async fn create_cart(&self, new: &Cart) -> Result<CreatedCart, EngineError> {
        let created = self.ledger.create_cart(new).await;
        created.map_err(|error| match error.is_of_all() {
            true => self.nothing_was_reserved(error),
            false => EngineError::of_change(error),
        })
    }

    /// The cart without its price.
    fn new_cart(&self, placement: &CartPlacement, items: &[Arc<KnownItem>]) -> Cart {
        let CartPlacement {
            buyer, key, lines, ..
        } = placement;
        // A repeat of the request must find time left.
        let time = SignedDuration::try_from(self.settings.order_timeout * 2);
        let deadline = Timestamp::now() + time.unwrap_or(SignedDuration::from_secs(10));
        Cart {
            id: CartId::derive(buyer, key),
            state: CartState::Placing,
            amount: 0,
            is_checked: placement.total != Some(Total::Unchecked),
            price: None,
            currency: items
                .first()
                .map(|known| known.item.currency.clone())
                .unwrap_or_default(),
            lines: lines
                .iter()
                .map(|(item, quantity)| CartLine {
                    order: OrderId::of_line(item, buyer, key),
                    item: item.clone(),
                    quantity: *quantity,
                })
                .collect(),
            buyer: buyer.clone(),
            deadline,
            expires_at: deadline,
            payment: None,
            refusal: None,
            version: 1,
        }
    }

    /// Makes sure that the journal of every line's item names the admin, as it does for a batch.
    async fn note_placers(&self, cart: &Cart, admin: &Arc<str>) -> Result<(), EngineError> {
        for line in &cart.lines {
            self.note_placer(&line.item, admin).await?;
        }
        Ok(())
    }

    async fn read_cart(&self, id: CartId) -> Result<Cart, EngineError> {
        let cart = self.ledger.cart(id).await?;
        // Carts are removed with old sales only.
        cart.ok_or(EngineError::OutcomeUnknown(self.settings.order_timeout))
    }

    /// Takes the units of every line, and decides the cart. Returns it as it is then: another
    /// request or a reconciler may have been faster.
    async fn place_lines(&self, cart: Cart, until: Instant) -> Result<Cart, EngineError> {
        let mut lines: Vec<_> = cart.lines.iter().collect();
        lines.sort_unstable_by_key(|line| &line.item);
        let mut taken = Vec::with_capacity(lines.len());
        for (at, line) in lines.iter().enumerate() {
            // The lines before it are recorded at about the same time.
            let acknowledge = match at + 1 == lines.len() {
                true => Acknowledge::Recorded,
                false => Acknowledge::Accepted,
            };
            let line_taken = self.take_line(&cart, line, acknowledge, until).await;
            // No other request places lines of a cart of version 1. The row stays: a repeat of the
            // request goes on with it, or a reconciler ends it after its deadline.
            let is_first = cart.version == 1 && at == 0;
            let line_taken = line_taken.map_err(|error| match is_first && took_nothing(&error) {
                true => self.nothing_was_reserved(error),
                false => error,
            });
            match line_taken? {
                Line::Taken => taken.push(line.order),
                Line::Refused(reason) => {
                    let item = (reason != RefusalReason::TimedOut).then(|| line.item.clone());
                    let refusal = CartRefusal { reason, item };
                    return self.fail_cart(&cart, refusal, &taken, until).await;
                }
                Line::Overtaken => return self.read_cart(cart.id).await,
            }
        }
        self.hold_cart(&cart, &taken, until).await
    }

    async fn take_line(
        &self,
        cart: &Cart,
        line: &CartLine,
        acknowledge: Acknowledge,
        until: Instant,
    ) -> Result<Line, EngineError> {
        let left = cart.deadline.duration_since(Timestamp::now());
        let Ok(left) = Duration::try_from(left) else {
            return Ok(Line::Refused(RefusalReason::TimedOut));
        };
        let Some(known) = self.known(&line.item).await? else {
            return Ok(Line::Refused(RefusalReason::NotOpen));
        };
        if known.is_archived() {
            return Ok(Line::Refused(RefusalReason::NotOpen));
        }
        let reservation = Reservation {
            order: line.order,
            buyer: cart.buyer.clone(),
            quantity: line.quantity,
            acknowledge,
            // No segment takes for the cart after its deadline.
            within: until.saturating_duration_since(Instant::now()).min(left),
        };
        known.requests.arrive();
        match known.stock.order(reservation).await {
            Ok(outcome) => {
                known.requests.end(&outcome);
                self.misses.end(line.order.as_uuid());
                self.line_of(&known, line, outcome).await
            }
            Err(StockError::OutcomeUnknown(_)) => {
                Err(EngineError::OutcomeUnknown(self.settings.order_timeout))
            }
            Err(error) if self.is_of_archived(&line.item, &error).await? => {
                Ok(Line::Refused(RefusalReason::NotOpen))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn line_of(
        &self,
        known: &KnownItem,
        line: &CartLine,
        outcome: Outcome,
    ) -> Result<Line, EngineError> {
        let may_be_elsewhere = matches!(outcome, Outcome::MaybeLost { .. });
        let reason = match outcome {
            Outcome::Held { .. } => return Ok(Line::Taken),
            Outcome::Released => return Ok(Line::Overtaken),
            Outcome::MaybeLost { refused } if !refused.is_sold_out() => RefusalReason::NotOpen,
            Outcome::MaybeLost { .. } => RefusalReason::SoldOut,
            Outcome::Shed | Outcome::Rejected => return Ok(Line::Refused(RefusalReason::SoldOut)),
            Outcome::NotOpen { .. } => return Ok(Line::Refused(RefusalReason::NotOpen)),
            Outcome::SoldOut => RefusalReason::SoldOut,
            Outcome::BuyerLimitReached => RefusalReason::BuyerLimitReached,
            // The cart's row fixes the quantity.
            Outcome::KeyReused { .. } => {
                return Err(EngineError::OutcomeUnknown(self.settings.order_timeout));
            }
        };
        // A failover may have lost a line that the ledger has.
        let recorded = self.ledger.order(line.order).await?;
        Ok(match recorded.map(|order| order.state) {
            Some(OrderState::Held) => Line::Taken,
            // A segment that has taken it keeps that until the ledger has it.
            None if may_be_elsewhere && known.stock.is_taken(line.order).await? => Line::Taken,
            _ => Line::Refused(reason),
        })
    }

    /// Makes the cart `held` as soon as the ledger has recorded every line as held.
    async fn hold_cart(
        &self,
        cart: &Cart,
        lines: &[OrderId],
        until: Instant,
    ) -> Result<Cart, EngineError> {
        if !self.are_recorded(lines, until).await? {
            return Err(EngineError::OutcomeUnknown(self.settings.order_timeout));
        }
        let states: BTreeMap<_, _> = self
            .ledger
            .recorded_among(lines)
            .await?
            .into_iter()
            .collect();
        let rejected = |line: &&CartLine| states.get(&line.order) == Some(&OrderState::Rejected);
        if let Some(line) = cart.lines.iter().find(rejected) {
            let refusal = CartRefusal {
                reason: RefusalReason::SoldOut,
                item: Some(line.item.clone()),
            };
            return self.fail_cart(cart, refusal, lines, until).await;
        }
        match self.step_cart(&CartStep::to(cart, CartState::Held)).await? {
            Some(stepped) => Ok(stepped.cart),
            None => self.read_cart(cart.id).await,
        }
    }

    /// Makes the cart `failed` and returns the units of the lines that were taken. A line that is
    /// recorded only later is released here, or by a reconciler.
    async fn fail_cart(
        &self,
        cart: &Cart,
        refusal: CartRefusal,
        taken: &[OrderId],
        until: Instant,
    ) -> Result<Cart, EngineError> {
        let soon = until.min(Instant::now() + RECORDED_SOON);
        // Another request for the same cart, now or before, may have taken lines too.
        // The spillover of a line that met a paused item is not over.
        let is_alone = cart.version == 1 && refusal.reason != RefusalReason::NotOpen;
        let is_settled = self.are_recorded(taken, soon).await? && is_alone;
        let fail = CartStep {
            refusal: Some(refusal),
            is_settled,
            ..CartStep::to(cart, CartState::Failed)
        };
        let Some(SteppedCart { cart, freed, .. }) = self.write_step(&fail).await? else {
            return self.read_cart(cart.id).await;
        };
        // The answer is known, so neither a failure nor the time limit changes it. A reconciler
        // does what is left.
        let until = until.checked_sub(ANSWER_TIME).unwrap_or(until);
        let settled = async {
            self.return_all(&freed).await;
            match is_settled {
                true => Ok(()),
                false => self.settle_failed(&cart, taken, is_alone, until).await,
            }
        };
        if let Ok(Err(error)) = timeout_at(until, settled).await {
            tracing::debug!(cart = %cart.id, %error, "could not release the lines of a failed cart");
        }
        Ok(cart)
    }

    /// Returns the units of the lines of a failed cart, if the ledger records them by then.
    async fn settle_failed(
        &self,
        cart: &Cart,
        taken: &[OrderId],
        is_settled: bool,
        until: Instant,
    ) -> Result<(), EngineError> {
        if self.are_recorded(taken, until).await? {
            let settle = CartStep {
                is_settled,
                ..CartStep::to(cart, CartState::Failed)
            };
            // `None`: a reconciler does it at the same time.
            self.step_cart(&settle).await?;
        }
        Ok(())
    }

    /// Whether the ledger has recorded all of these orders by then.
    async fn are_recorded(&self, ids: &[OrderId], until: Instant) -> Result<bool, EngineError> {
        let mut pause = POLL_PAUSE_MIN;
        while !ids.is_empty() && self.ledger.recorded_among(ids).await?.len() < ids.len() {
            if Instant::now() + pause > until {
                return Ok(false);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(POLL_PAUSE_MAX);
        }
        Ok(true)
    }

    /// Makes one step of the cart in the ledger, and then returns the units that it has freed.
    /// `None`: the cart has changed, or something else has the payment.
    pub(super) async fn step_cart(
        &self,
        step: &CartStep,
    ) -> Result<Option<SteppedCart>, EngineError> {
        let stepped = self.write_step(step).await?;
        if let Some(stepped) = &stepped {
            self.return_all(&stepped.freed).await;
        }
        Ok(stepped)
    }

    /// The step in the ledger. The units of the lines that it frees have not returned yet.
    async fn write_step(&self, step: &CartStep) -> Result<Option<SteppedCart>, EngineError> {
        let stepped = self.ledger.step_cart(step).await;
        let stepped = stepped.map_err(EngineError::of_change)?;
        if stepped.is_some() && step.cart.state != step.to {
            metrics::counter!("stockade_carts_total", "to" => step.to.as_str()).increment(1);
        }
        Ok(stepped)
    }

    async fn return_all(&self, orders: &[Order]) {
        join_all(orders.iter().map(|order| self.return_units_or_defer(order))).await;
    }
}

/// Whether a line has certainly taken no units by the attempt that failed.
fn took_nothing(error: &EngineError) -> bool {
    match error {
        EngineError::Stock(error) => error.proves_unchanged(),
        error => error.proves_unchanged(),
    }
}

/// The order of the lines does not matter.
fn has_same_lines(known: &Cart, new: &Cart) -> bool {
    let lines = |cart: &Cart| -> BTreeMap<OrderId, Quantity> {
        let lines = cart.lines.iter();
        lines.map(|line| (line.order, line.quantity)).collect()
    };
    lines(known) == lines(new)
}

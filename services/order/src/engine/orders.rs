//! Placing an order, and finding one.

use std::{mem, pin::pin, time::Duration};

use domain::{
    BuyerId, Durability, IdempotencyKey, Item, ItemId, Order, OrderId, OrderState, Quantity,
    Stated, TakenOrder,
};
use jiff::Timestamp;
use stock::{Acknowledge, Found, Outcome, Reservation, StockError, Unrecorded};
use tokio::time::Instant;

use super::{Engine, EngineError, KnownItem, OrderView, Price, StatedBy};
use crate::timer::{OwnTimer, Timer};

/// An order to be placed.
#[derive(Debug, Clone)]
pub struct Placement {
    /// The item that is ordered.
    pub item: ItemId,
    /// The buyer.
    pub buyer: BuyerId,
    /// Identifies the order among the buyer's orders.
    pub key: IdempotencyKey,
    /// Number of units that the order asks for.
    pub quantity: Quantity,
    /// What the shop states of it. An order of which nothing is stated costs the price of its
    /// units.
    pub stated: Stated,
    /// Who states it.
    pub stated_by: StatedBy,
    /// Whether to answer before the ledger has the order.
    pub respond_async: bool,
}

/// Result of placing an order, in order of precedence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placed {
    /// There is no such item.
    ItemNotFound,
    /// The key belongs to an order with another quantity.
    KeyReused {
        /// The quantity of that order.
        quantity: Quantity,
    },
    /// The key belongs to an order that costs something else.
    OtherAmount,
    /// The item does not sell at this time.
    NotOpen {
        /// `open` outside its window, `paused`, `closed` or `archived`.
        state: String,
        /// Start of the sale.
        opens_at: Option<Timestamp>,
        /// Whether no attempt of this order can take units any more. Otherwise nothing was written,
        /// and an attempt that is still under way may end differently.
        is_final: bool,
    },
    /// The order asks for more units than one order may.
    TooManyUnits {
        /// What one order may ask for.
        max: Quantity,
    },
    /// The order would exceed the buyer's limit. Nothing was written, so another attempt may end
    /// differently.
    BuyerLimitReached,
    /// The order is placed.
    Order {
        /// The order: `held`, unless it was placed before and has changed since.
        order: OrderView,
        /// Whether an earlier request placed it.
        replayed: bool,
        /// Whether the ledger has it.
        recorded: bool,
    },
    /// No unit is left for this order, which is recorded: every attempt ends so.
    SoldOut,
    /// The sold-out cache of this instance refused the request. Nothing was written, so another
    /// attempt may end differently.
    Shed,
}

/// First and longest pause between two polls of the ledger for an order.
pub(super) const POLL_PAUSE_MIN: Duration = Duration::from_millis(4);
pub(super) const POLL_PAUSE_MAX: Duration = Duration::from_millis(64);

impl Engine {
    /// Places the order. The same item, buyer and key always mean the same order, at every instance
    /// and for every repeat.
    ///
    /// One deadline covers all steps, and only steps that wait set a timer. Nearly every order
    /// finds its item in the cache and gets a final outcome from the stock, so it needs only one.
    pub async fn place(&self, placement: Placement) -> Result<Placed, EngineError> {
        self.place_within(placement, &OwnTimer).await
    }

    /// The same, with the caller's timer for the step that nearly every order consists of.
    pub(crate) async fn place_within(
        &self,
        mut placement: Placement,
        timer: &impl Timer,
    ) -> Result<Placed, EngineError> {
        let until = Instant::now() + self.settings.order_timeout;
        let (stated, by) = (mem::take(&mut placement.stated), placement.stated_by);
        let placed = self.reserve(placement, until, timer).await?;
        if stated == Stated::default() {
            return Ok(placed.at_price());
        }
        // Boxed: of few orders anything is stated, and it would enlarge the future of each.
        Box::pin(self.as_stated(placed, (&stated, by), until)).await
    }

    /// Takes the units of the order, whatever it costs.
    async fn reserve(
        &self,
        placement: Placement,
        until: Instant,
        timer: &impl Timer,
    ) -> Result<Placed, EngineError> {
        let known = match self.items.get(&placement.item) {
            Some(known) => known,
            None => match self
                .with_deadline(until, self.known(&placement.item))
                .await
                .map_err(|error| self.nothing_was_reserved(error))?
            {
                Some(known) => known,
                None => return Ok(Placed::ItemNotFound),
            },
        };
        known.requests.arrive();
        if let Some(max) = known
            .item
            .max_per_order
            .filter(|max| placement.quantity > *max)
        {
            known.requests.limit();
            return Ok(Placed::TooManyUnits { max });
        }
        let id = OrderId::derive(&known.item.id, known.tag, &placement.buyer, &placement.key);
        if known.is_archived() {
            known.requests.refuse_archived();
            let placed = self.place_archived(&known, id, placement.quantity);
            return Box::pin(self.with_deadline(until, placed)).await;
        }
        let acknowledge = acknowledge(&known, placement.respond_async);
        let within = until.saturating_duration_since(Instant::now());
        let reservation = Reservation {
            order: id,
            buyer: placement.buyer,
            quantity: placement.quantity,
            acknowledge,
            within,
        };
        let outcome = {
            let ordered = pin!(known.stock.order_without_timer(&reservation));
            timer.within(within, ordered).await
        };
        let outcome = match outcome {
            Some(Ok(outcome)) => outcome,
            None | Some(Err(StockError::OutcomeUnknown(_))) => {
                known.stock.request_look();
                return Err(EngineError::OutcomeUnknown(self.settings.order_timeout));
            }
            Some(Err(error @ StockError::Missing(_))) => {
                known.stock.request_look();
                let placed = self.place_without_segment(&known, id, placement.quantity, error);
                return Box::pin(self.with_deadline(until, placed)).await;
            }
            Some(Err(error)) if error.proves_unchanged() => {
                return Err(self.nothing_was_reserved(error));
            }
            Some(Err(error)) => return Err(error.into()),
        };
        known.requests.end(&outcome);
        if matches!(outcome, Outcome::Held { .. }) {
            self.misses.end(id.as_uuid());
        }
        match next_step(outcome, reservation, placement.item, &known.item) {
            NextStep::Answer(placed) => Ok(placed),
            // Boxed: this is rare, and would enlarge the future of every order.
            NextStep::ReadLedger(read) => {
                Box::pin(self.with_deadline(
                    until,
                    self.read_ledger(read, id, placement.quantity, &known.item, until),
                ))
                .await
            }
        }
    }

    /// The error of an order or cart that has reserved nothing. If a store has refused it, the
    /// process is not ready from now on: whoever asks next must not hear what an older look has
    /// seen.
    pub(super) fn nothing_was_reserved(&self, error: impl Into<EngineError>) -> EngineError {
        let error = error.into();
        self.note_refusal(&error);
        EngineError::before_change(error)
    }

    pub(super) fn note_refusal(&self, error: &EngineError) {
        self.readiness.note_refusal(error);
    }

    async fn read_ledger(
        &self,
        read: LedgerRead,
        id: OrderId,
        quantity: Quantity,
        item: &Item,
        until: Instant,
    ) -> Result<Placed, EngineError> {
        let price = Price::of(item);
        Ok(match read {
            LedgerRead::IfLost { otherwise } => self
                .in_ledger(id, quantity, price)
                .await?
                .unwrap_or(otherwise),
            LedgerRead::IfElsewhere { otherwise } => {
                // A crowd at a sold-out item is looked up together. A failure leaves it unknown
                // whether an earlier request has placed the order.
                let is_known = self.order_look_ups.has(self, id).await;
                if is_known.map_err(EngineError::after_change)?
                    && let Some(placed) = self.in_ledger(id, quantity, price).await?
                {
                    placed
                } else if self.stock.item(item).is_taken(id).await? {
                    placed_before(self.wait_for_order(id, 0, until).await?, price, true)
                } else {
                    otherwise
                }
            }
            LedgerRead::IfChanged { held } => match self.ledger.order(id).await? {
                Some(order) => placed_before(order, price, true),
                // Seldom, so no connection keeps room for it.
                None => Box::pin(self.as_answered_first(held, id, item)).await?,
            },
            LedgerRead::WhenRecorded { replayed } => {
                placed_before(self.wait_for_order(id, 0, until).await?, price, replayed)
            }
        })
    }

    /// The answer to a repeat, with the price that the first one has told: that of the entry by
    /// which a segment gave the units.
    async fn as_answered_first(
        &self,
        held: Placed,
        id: OrderId,
        item: &Item,
    ) -> Result<Placed, EngineError> {
        let first = Price::of(item);
        Ok(match self.stock.item(item).find(id, None).await? {
            Found::Unrecorded(found) => held.given(first.given(found.price)),
            Found::Recorded => match self.ledger.order(id).await? {
                Some(order) => placed_before(order, first, true),
                None => held,
            },
            // A failover has lost it since.
            Found::Nowhere => held,
        })
    }

    /// The result for an order that the stock does not have, if the ledger has it.
    pub(super) async fn in_ledger(
        &self,
        id: OrderId,
        quantity: Quantity,
        price: Price,
    ) -> Result<Option<Placed>, EngineError> {
        let placed = |order: Order| match order.quantity == quantity {
            true => placed_before(order, price, true),
            false => Placed::KeyReused {
                quantity: order.quantity,
            },
        };
        Ok(self.ledger.look_up_order(id).await?.map(placed))
    }

    /// Waits until the ledger has this attempt of the order.
    pub(super) async fn wait_for_order(
        &self,
        id: OrderId,
        attempt: u8,
        until: Instant,
    ) -> Result<Order, EngineError> {
        let mut pause = POLL_PAUSE_MIN;
        loop {
            if let Some(order) = self
                .ledger
                .order(id)
                .await?
                .filter(|order| order.attempt >= attempt)
            {
                return Ok(order);
            }
            if Instant::now() + pause > until {
                return Err(EngineError::OutcomeUnknown(self.settings.order_timeout));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(POLL_PAUSE_MAX);
        }
    }

    /// The order, if the ledger or a segment has it and it belongs to `buyer` (`None`: any buyer).
    pub async fn find_order(
        &self,
        id: OrderId,
        buyer: Option<&BuyerId>,
    ) -> Result<Option<Order>, EngineError> {
        let (uuid, mark) = (id.as_uuid(), self.misses.mark(id.as_uuid()));
        if self.misses.has(uuid, buyer) {
            return Ok(None);
        }
        let found = self.find_anywhere(id, buyer).await?;
        let found = found.filter(|order| buyer.is_none_or(|buyer| *buyer == order.buyer));
        if found.is_none() {
            self.misses.note(uuid, buyer, mark);
        }
        Ok(found)
    }

    /// The order once the ledger has recorded it. `buyer`: whose order it must be, though it may be
    /// another's (`None`: any buyer's).
    pub(super) async fn recorded_order(
        &self,
        id: OrderId,
        buyer: Option<&BuyerId>,
        until: Instant,
    ) -> Result<Option<Order>, EngineError> {
        let id = id.first();
        if buyer.is_some() && self.misses.has(id.as_uuid(), buyer) {
            return Ok(None);
        }
        if let Some(order) = self.ledger.order(id).await? {
            return Ok(Some(order));
        }
        let found = match buyer {
            Some(_) => self.find_order(id, buyer).await?,
            // A report of a payment, for example: money depends on what is there now.
            None => self.find_anywhere(id, None).await?,
        };
        if found.is_none() {
            return Ok(None);
        }
        self.wait_for_order(id, 0, until).await.map(Some)
    }

    /// The order, possibly of another buyer. One that does not exist costs a statement. A buyer's
    /// look-up costs a command of Redis besides, and of an item with several segments a look at its
    /// home's mark.
    async fn find_anywhere(
        &self,
        id: OrderId,
        buyer: Option<&BuyerId>,
    ) -> Result<Option<Order>, EngineError> {
        let items = self.tags.items(&*self.ledger, id.tag()).await?;
        if items.is_empty() {
            return Ok(None);
        }
        if let Some(order) = self.ledger.look_up_order(id).await? {
            return Ok(Some(order));
        }
        for item in &*items {
            let Some(known) = self.known(item).await? else {
                continue;
            };
            if known.is_archived() {
                continue;
            }
            match known.stock.find(id, buyer).await? {
                Found::Nowhere => {}
                Found::Recorded => return Ok(self.ledger.look_up_order(id).await?),
                Found::Unrecorded(found) => return self.unrecorded(&known, *found).await.map(Some),
            }
        }
        Ok(None)
    }

    async fn unrecorded(&self, known: &KnownItem, found: Unrecorded) -> Result<Order, EngineError> {
        let Unrecorded {
            order:
                TakenOrder {
                    id,
                    buyer,
                    quantity,
                },
            segment,
            expires_at,
            price,
        } = found;
        Ok(Order {
            id,
            item: known.item.id.clone(),
            segment,
            buyer,
            quantity,
            price,
            stated: Stated::default(),
            state: OrderState::Held,
            created_at: created_at(expires_at, &known.item),
            expires_at,
            attempt: 0,
            payment: None,
            cart: self.ledger.cart_of_line(id).await?,
            version: FIRST_VERSION,
        })
    }
}

/// How to answer an order after the stock's outcome.
enum NextStep {
    Answer(Placed),
    /// The ledger decides.
    ReadLedger(LedgerRead),
}

/// Why the ledger has to be read for an order.
enum LedgerRead {
    /// The stock refused the order. A failover may have lost an order of its home segment that the
    /// ledger has, before the repair. Most refused orders are shed in process, so few of them get
    /// this far.
    IfLost { otherwise: Placed },
    /// The order was refused without a record, and a failover may have lost what its home had
    /// declined. The ledger or another segment may have it.
    IfElsewhere { otherwise: Placed },
    /// The order is a repeat, and may have been paid or cancelled since. If the ledger does not
    /// have it, it has not.
    IfChanged { held: Placed },
    /// The ledger has the order, or will have it.
    WhenRecorded { replayed: bool },
}

/// `id` is that of the item. A copy of it from `item`, which all orders of a crowd share, would
/// count on one cache line of all processors.
fn next_step(outcome: Outcome, reservation: Reservation, id: ItemId, item: &Item) -> NextStep {
    match outcome {
        Outcome::KeyReused { quantity } => NextStep::Answer(Placed::KeyReused { quantity }),
        Outcome::NotOpen {
            state, opens_at, ..
        } => NextStep::Answer(Placed::NotOpen {
            state,
            opens_at,
            is_final: false,
        }),
        Outcome::Shed => NextStep::Answer(Placed::Shed),
        Outcome::MaybeLost { refused } => match next_step(*refused, reservation, id, item) {
            NextStep::Answer(otherwise) => {
                NextStep::ReadLedger(LedgerRead::IfElsewhere { otherwise })
            }
            read => read,
        },
        Outcome::Rejected => NextStep::Answer(Placed::SoldOut),
        Outcome::SoldOut => NextStep::ReadLedger(LedgerRead::IfLost {
            otherwise: Placed::SoldOut,
        }),
        Outcome::BuyerLimitReached => NextStep::ReadLedger(LedgerRead::IfLost {
            otherwise: Placed::BuyerLimitReached,
        }),
        Outcome::Held {
            expires_at,
            price,
            replayed,
            recorded,
        } => {
            let held = Placed::Order {
                order: OrderView {
                    id: reservation.order,
                    item: id,
                    buyer: reservation.buyer,
                    quantity: reservation.quantity,
                    price: Price::of(item).given(price),
                    stated: Stated::default(),
                    state: OrderState::Held,
                    created_at: created_at(expires_at, item),
                    expires_at,
                    payment: None,
                    cart: None,
                    version: FIRST_VERSION,
                },
                replayed,
                recorded,
            };
            match reservation.acknowledge {
                Acknowledge::Recorded if !recorded => {
                    NextStep::ReadLedger(LedgerRead::WhenRecorded { replayed })
                }
                Acknowledge::Accepted if replayed => {
                    NextStep::ReadLedger(LedgerRead::IfChanged { held })
                }
                Acknowledge::Recorded | Acknowledge::Accepted => NextStep::Answer(held),
            }
        }
        Outcome::Released => NextStep::ReadLedger(LedgerRead::WhenRecorded { replayed: true }),
    }
}

/// The result for an order from the ledger.
pub(super) fn placed_before(order: Order, price: Price, replayed: bool) -> Placed {
    match order.state {
        OrderState::Rejected => Placed::SoldOut,
        _ => Placed::Order {
            order: OrderView::of(order, price),
            replayed,
            recorded: true,
        },
    }
}

/// The version that the ledger gives to a new order.
const FIRST_VERSION: u64 = 1;

/// When the units of an order were taken whose first hold ends then. The ledger reckons the same.
fn created_at(expires_at: Timestamp, item: &Item) -> Option<Timestamp> {
    let hold = Duration::from_secs(item.hold_seconds.into());
    expires_at.checked_sub(hold).ok()
}

fn acknowledge(known: &KnownItem, respond_async: bool) -> Acknowledge {
    match known.item.durability {
        Durability::Recorded if !respond_async => Acknowledge::Recorded,
        // With `replicated`, the stock answers after the replicas have confirmed.
        Durability::Recorded | Durability::Accepted | Durability::Replicated => {
            Acknowledge::Accepted
        }
    }
}

//! One item's stock in this process: its segments and the batchers to them, admission, and
//! snapshots.

mod batches;
mod beat;
mod buyer_limit;
mod buyers;
mod consolidate;
mod early;
mod foreseen;
mod look;
mod release;
mod reserve;
mod settle;
mod survey;
mod turn;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use domain::{
    BuyerId, Change, Item, ItemId, ItemState, OrderId, SafetyCheck, SegmentKey, TakenOrder,
};
use futures::future::{join_all, try_join_all};
use jiff::Timestamp;

use crate::{
    StockError,
    admission::{Admission, Admitted, Permit, SoldOut},
    batcher::Batcher,
    checked::Checked,
    decision::Decision,
    keys::Keys,
    outbox::decode_entries,
    reply::ReplyReader,
    request::{Outcome, Reservation},
    script::{Inspection, InspectionEntries, Transport},
    shared::Shared,
    snapshot,
};
use batches::{Finishes, Reservations, SegmentContext, Way};
use beat::Beat;
use buyer_limit::BuyerLimit;
use early::Early;
use foreseen::Closed;
pub use foreseen::{Foreseen, Foresight};
pub use release::Release;
pub use settle::Settled;
use survey::{Survey, Surveys, is_sound};
use turn::Turn;

/// Snapshots that an order may request because the unit that it waited for is gone and the cache
/// has expired. Units that keep coming back cause that. If the order proceeded instead, each unit
/// would cost a spillover for every waiter.
const SNAPSHOTS_MAX: usize = 64;

/// Pause before the next snapshot, if no segment has units and some may be on their way.
const TRANSIT_PAUSE: Duration = Duration::from_millis(10);

/// One item's stock.
pub struct ItemStock {
    /// The item.
    pub id: ItemId,
    segments: Vec<Segment>,
    shared: Arc<Shared>,
    admission: Arc<Admission>,
    consolidation_turn: Turn,
    look_turn: Turn,
    limit: BuyerLimit,
    early: Early,
    closed: Closed,
    surveys: Surveys,
    background_read: Turn,
    /// When units return while there are none.
    returns: Beat,
    shed_orders: metrics::Counter,
}

/// One segment, and the batchers to it.
struct Segment {
    keys: Arc<Keys>,
    transport: Transport,
    home: Batcher<Reservations>,
    next: Batcher<Reservations>,
    again: Batcher<Reservations>,
    finish: Batcher<Finishes>,
}

impl Segment {
    fn number(&self) -> u16 {
        self.keys.segment.segment
    }
}

impl ItemStock {
    pub(crate) fn new(item: &Item, shared: &Arc<Shared>) -> Self {
        let cache_ttl = shared.settings.sold_out_cache_ttl;
        let admission = Arc::new(Admission::new(item.segments, cache_ttl));
        let segments = (0..item.segments)
            .map(|segment| Self::segment(item, segment, shared, &admission))
            .collect();
        Self {
            id: item.id.clone(),
            segments,
            shared: Arc::clone(shared),
            admission,
            consolidation_turn: Turn::default(),
            look_turn: Turn::default(),
            limit: BuyerLimit::new(item.limit_per_buyer),
            early: Early::default(),
            closed: Closed::default(),
            surveys: Surveys::default(),
            background_read: Turn::default(),
            returns: Beat::default(),
            shed_orders: metrics::counter!("stockade_shed_orders_total"),
        }
    }

    fn segment(
        item: &Item,
        segment: u16,
        shared: &Arc<Shared>,
        admission: &Arc<Admission>,
    ) -> Segment {
        let key = SegmentKey {
            item: item.id.clone(),
            segment,
        };
        let context = SegmentContext {
            keys: Arc::new(Keys::of(&key)),
            transport: shared.transport(item.durability),
            shared: Arc::clone(shared),
            admission: Arc::clone(admission),
            waiters: shared.checkpoints.of(&key),
        };
        let (batch_max, runtime) = (shared.settings.batch_max, &shared.runtime);
        let reservations = |way| {
            let batch = Reservations(context.clone(), way);
            Batcher::new(batch, batch_max, runtime.clone())
        };
        Segment {
            keys: Arc::clone(&context.keys),
            transport: context.transport.clone(),
            home: reservations(Way::Home),
            next: reservations(Way::Next),
            again: reservations(Way::Again),
            finish: Batcher::new(Finishes(context), batch_max, runtime.clone()),
        }
    }

    /// The segments in the order in which this buyer's orders try them: home first.
    fn ring(&self, buyer: &BuyerId) -> impl Iterator<Item = &Segment> + Clone {
        let home = home(buyer, self.segments.len());
        self.segments[home..].iter().chain(&self.segments[..home])
    }

    /// Admits the order, or says how it is refused by the sold-out cache.
    async fn admit(&self, reservation: &Reservation) -> Result<Permit, Outcome> {
        let buyer = reservation.buyer.stable_hash();
        let units = u64::from(reservation.quantity.get());
        for _ in 0..SNAPSHOTS_MAX {
            // Again after each snapshot: only then a process that has just started knows that units
            // are fragmented, and the decision of a spillover is permanent.
            if self.admission.is_fragmented(units) && self.may_hold(units).await {
                consolidate::wait(self, units, reservation.within).await;
            }
            match self.admission.admit(buyer, units).await {
                Admitted::Enter(permit) => return Ok(permit),
                Admitted::SoldOut => {
                    self.shed_orders.increment(1);
                    return Err(Outcome::Shed);
                }
                Admitted::LookUp(sold_out) => {
                    // Boxed: this is rare, and would enlarge the future of every order.
                    let is_stranger = Box::pin(self.is_stranger(&reservation.buyer, &sold_out));
                    let refused = match is_stranger.await {
                        Some(true) => Outcome::Shed,
                        Some(false) => return Ok(self.admission.enter(units)),
                        None => Outcome::Shed.maybe_lost(),
                    };
                    self.shed_orders.increment(1);
                    return Err(refused);
                }
                Admitted::Unproven => {
                    let may_be_repeating = Box::pin(self.may_be_repeating(&reservation.buyer));
                    if may_be_repeating.await {
                        return Ok(self.admission.enter(units));
                    }
                    self.shed_orders.increment(1);
                    return Err(Outcome::Shed.maybe_lost());
                }
                Admitted::Refresh => {
                    let runtime = &self.shared.runtime;
                    let snapshot =
                        async |before| runtime.host(self.sold_out_snapshot(before)).await;
                    if self.admission.refresh(snapshot).await.is_err() {
                        break;
                    }
                    if self.admission.is_undecided() {
                        let more_units = self.admission.more_units();
                        let _ = tokio::time::timeout(TRANSIT_PAUSE, more_units).await;
                    }
                }
            }
        }
        // Unknown. The order proceeds; if Redis fails, the attempts handle its errors.
        Ok(self.admission.enter(units))
    }

    /// Whether the buyer has nothing at home, and never had. `None`: home knows nothing of the
    /// buyer, and may have lost it.
    async fn is_stranger(&self, buyer: &BuyerId, sold_out: &SoldOut) -> Option<bool> {
        if self.may_be_repeating(buyer).await {
            return Some(false);
        }
        let checked = sold_out.checked.as_ref()?;
        if self.segments.len() > 1 && !self.is_still_checked(buyer, checked).await {
            return None;
        }
        if let Some(buyers) = &sold_out.buyers {
            buyers.note_stranger(buyer.stable_hash());
        }
        Some(true)
    }

    /// Whether a segment has taken the order. Each of them is asked.
    pub async fn is_taken(&self, order: OrderId) -> Result<bool, StockError> {
        let asked = self.segments.iter();
        let asked = asked.map(|segment| self.decision_at(segment, order));
        let decisions = join_all(asked).await.into_iter();
        let decisions: Vec<_> = decisions.collect::<Result<_, _>>()?;
        let mut decisions = decisions.iter();
        Ok(decisions.any(|decision| matches!(decision, Some(Decision::Taken { .. }))))
    }

    /// Whether one buyer may hold so many units. An order above the limit goes to its home segment,
    /// which refuses it: nothing is moved for it.
    async fn may_hold(&self, units: u64) -> bool {
        if self.limit.allows(units) {
            return true;
        }
        // The limit may have been raised since.
        if self.limit.is_due_for_refresh() {
            let _ = self.survey(Instant::now()).await;
        }
        self.limit.allows(units)
    }

    async fn sold_out_snapshot(
        &self,
        before: Option<Arc<SoldOut>>,
    ) -> Result<Option<SoldOut>, StockError> {
        let mut survey = self.survey(Instant::now()).await?;
        if !survey.has_together(1) && survey.free_at_most.is_none() {
            // It does not agree with the one before, which may be old. The next one may.
            survey = self.survey(Instant::now()).await?;
        }
        let Survey {
            begun: as_of,
            segments,
            free_at_most,
            checked,
        } = &*survey;
        if survey.has_together(1) {
            return Ok(None);
        }
        let as_of = *as_of;
        let marks: Vec<_> = segments
            .iter()
            .map(|segment| (segment.epoch, segment.last))
            .collect();
        if !self.is_open(segments) {
            return Ok(Some(SoldOut::new(as_of, marks, None)));
        }
        if *free_at_most != Some(0) && SafetyCheck::SoldOutProof.is_enabled() {
            return Ok(None);
        }
        let Some(checked) = checked else {
            let unproven = SoldOut::new(as_of, marks, None);
            return Ok(Some(unproven.checked_in(None)));
        };
        let same = before
            .filter(|before| before.marks == marks && before.checked.as_ref() == Some(checked));
        let buyers = match same.and_then(|before| before.buyers.clone()) {
            Some(buyers) => Some(buyers),
            None => self.buyers_while_checked(segments, checked).await?,
        };
        let Some(buyers) = buyers else {
            // A transfer or a repair came in between: the next snapshot tells.
            if self.surveys.checked().is_some() {
                return Ok(None);
            }
            let unproven = SoldOut::new(as_of, marks, None);
            return Ok(Some(unproven.checked_in(None)));
        };
        self.read_buyers_in_background(&buyers, Arc::clone(checked));
        let sold_out = SoldOut::new(as_of, marks, Some(buyers));
        Ok(Some(sold_out.checked_in(Some(Arc::clone(checked)))))
    }

    fn is_open(&self, segments: &[Inspection]) -> bool {
        let now = self.shared.clock.now_ms();
        let inside = |segment: &Inspection| {
            segment.opens_ms <= now && (segment.closes_ms == 0 || now < segment.closes_ms)
        };
        // A segment that lost its buyers would have the cache shed those who hold units.
        segments
            .iter()
            .all(|segment| is_sound(segment) && inside(segment) && segment.state == ItemState::Open)
    }

    /// Notes that units have come back to a segment: the item is not sold out any more.
    pub(crate) fn came_back(&self, segment: u16, available: u64) {
        self.admission.came_back(segment, available);
    }

    /// Notes that messages may have been missed, so what is known of the segments may be out of
    /// date.
    pub(crate) fn invalidate(&self) {
        self.admission.invalidate();
        self.early.forget();
        self.closed.forget();
    }

    /// Notes that the item's state or window has changed.
    pub(crate) fn reconfigured(&self) {
        self.early.forget();
        self.closed.forget();
    }

    /// A snapshot of every segment. Each describes one moment; all of them together do not.
    pub async fn inspect(&self, entries: InspectionEntries) -> Result<Vec<Inspection>, StockError> {
        let inspect = |segment| self.inspect_segment(segment, entries);
        join_all(self.segments.iter().map(inspect))
            .await
            .into_iter()
            .collect()
    }

    async fn inspect_segment(
        &self,
        segment: &Segment,
        entries: InspectionEntries,
    ) -> Result<Inspection, StockError> {
        snapshot::take(&self.shared.connection, &segment.keys, entries).await
    }

    /// Finds an order that has its units and that the ledger has not recorded yet. It is in the
    /// outbox of the segment that gave the units.
    pub async fn find_unrecorded(&self, order: OrderId) -> Result<Option<Unrecorded>, StockError> {
        Ok(match self.find(order, None).await? {
            Found::Unrecorded(unrecorded) => Some(*unrecorded),
            Found::Nowhere | Found::Recorded => None,
        })
    }

    /// The same, and whether a segment knows the order at all. If it is an order of `buyer` or of
    /// no other, one segment is asked for an order that does not exist: the buyer's home decides it
    /// first, and knows it for as long as any other segment does, unless a failover lost what it
    /// had declined. Without a buyer all are asked.
    pub async fn find(&self, order: OrderId, buyer: Option<&BuyerId>) -> Result<Found, StockError> {
        if let Some(buyer) = buyer
            && let Some(home) = self.ring(buyer).next()
        {
            let checked = self.surveys.checked();
            match self.decision_at(home, order).await? {
                None if self
                    .is_unknown(home, order, buyer, checked.as_deref())
                    .await? =>
                {
                    return Ok(Found::Nowhere);
                }
                None => {}
                Some(Decision::Taken { .. }) => return self.found_at(home, order).await,
                Some(Decision::Elsewhere { segment, .. }) => {
                    return match self.segments.get(usize::from(segment)) {
                        Some(segment) => self.found_at(segment, order).await,
                        None => Ok(Found::Nowhere),
                    };
                }
                // Another segment may have given the units, and home hears of it later.
                Some(_) => {}
            }
        }
        let decisions = self.segments.iter().map(|segment| async move {
            let decision = self.decision_at(segment, order).await?;
            Ok::<_, StockError>((segment, decision))
        });
        for (segment, decision) in try_join_all(decisions).await? {
            if let Some(Decision::Taken { .. }) = decision {
                return self.found_at(segment, order).await;
            }
        }
        Ok(Found::Nowhere)
    }

    /// Whether the home, which has just said that it does not know the order, has lost nothing: it
    /// was checked `before` and after it was asked, and no repair came in between.
    async fn is_unknown(
        &self,
        home: &Segment,
        order: OrderId,
        buyer: &BuyerId,
        before: Option<&Checked>,
    ) -> Result<bool, StockError> {
        if self.segments.len() == 1 {
            return Ok(true);
        }
        if let Some(checked) = before
            && self.is_still_checked(buyer, checked).await
        {
            return Ok(true);
        }
        // A transfer may have come in between: a snapshot of now tells, and home is asked again.
        let Some(checked) = self.checked_now().await else {
            return Ok(false);
        };
        Ok(self.decision_at(home, order).await?.is_none()
            && self.is_still_checked(buyer, &checked).await)
    }

    async fn found_at(&self, segment: &Segment, order: OrderId) -> Result<Found, StockError> {
        let found = self.find_in_outbox(segment, order).await?;
        Ok(found.map_or(Found::Recorded, |found| Found::Unrecorded(Box::new(found))))
    }

    /// Whether the order's home has declined it, and nothing has decided yet: a repeat may still
    /// take units.
    pub async fn is_undecided(&self, buyer: &BuyerId, order: OrderId) -> Result<bool, StockError> {
        let Some(home) = self.ring(buyer).next() else {
            return Ok(false);
        };
        let decision = self.decision_at(home, order).await?;
        Ok(matches!(decision, Some(Decision::Declined { .. })))
    }

    async fn decision_at(
        &self,
        segment: &Segment,
        order: OrderId,
    ) -> Result<Option<Decision>, StockError> {
        let mut cmd = redis::cmd("HGET");
        cmd.arg(&segment.keys.decisions).arg(&order.as_bytes()[..]);
        // Not on the connection of the orders: a look-up must not stand before one.
        let (bulk, runtime) = (&self.shared.bulk, &self.shared.runtime);
        let stored: Option<Vec<u8>> = runtime.host(bulk.query(&cmd)).await?;
        stored.as_deref().map(Decision::parse).transpose()
    }

    async fn find_in_outbox(
        &self,
        segment: &Segment,
        wanted: OrderId,
    ) -> Result<Option<Unrecorded>, StockError> {
        let whole = OutboxRange {
            from: "-".into(),
            to: "+".into(),
        };
        // Its entry has the time at which it took its units. If it has a later one, because the
        // server's clock was set back, the whole outbox is searched.
        let near = self.taken_at(segment, wanted).await?;
        for range in near.into_iter().chain([whole]) {
            if let Some(found) = self.search_outbox(segment, wanted, range).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Where the entry of a taken order is to be expected.
    async fn taken_at(
        &self,
        segment: &Segment,
        order: OrderId,
    ) -> Result<Option<OutboxRange>, StockError> {
        let decision = self.decision_at(segment, order).await?;
        let Some(Decision::Taken { expires_ms, .. }) = decision else {
            return Ok(None);
        };
        let mut cmd = redis::cmd("HGET");
        cmd.arg(&segment.keys.stock).arg("hold_ms");
        let (bulk, runtime) = (&self.shared.bulk, &self.shared.runtime);
        let hold_ms: Option<i64> = runtime.host(bulk.query(&cmd)).await?;
        Ok(hold_ms.map(|hold_ms| OutboxRange {
            from: (expires_ms - hold_ms).max(0).to_string(),
            to: (expires_ms - hold_ms + OUTBOX_NEAR_MS).max(0).to_string(),
        }))
    }

    /// Reads the range page by page, until the order is found.
    async fn search_outbox(
        &self,
        segment: &Segment,
        wanted: OrderId,
        mut range: OutboxRange,
    ) -> Result<Option<Unrecorded>, StockError> {
        loop {
            let mut cmd = redis::cmd("XRANGE");
            cmd.arg(&segment.keys.outbox)
                .arg(&range.from)
                .arg(&range.to)
                .arg("COUNT")
                .arg(OUTBOX_PAGE);
            let (bulk, runtime) = (&self.shared.bulk, &self.shared.runtime);
            let page: redis::Value = runtime.host(bulk.query(&cmd)).await?;
            let page = decode_entries(ReplyReader::new(page)?)?;
            let next = page.last().filter(|_| page.len() == OUTBOX_PAGE);
            let next = next.map(|last| format!("({}", last.id));
            let found = page.into_iter().find_map(|entry| match entry.change {
                Change::Taken {
                    expires_at,
                    price,
                    orders,
                } => {
                    let order = orders.into_iter().find(|order| order.id == wanted)?;
                    Some(Unrecorded {
                        order,
                        segment: segment.number(),
                        expires_at,
                        price,
                    })
                }
                _ => None,
            });
            match next {
                Some(next) if found.is_none() => range.from = next,
                _ => return Ok(found),
            }
        }
    }
}

/// Entries that one step of a look-up reads.
const OUTBOX_PAGE: usize = 256;
/// How long after its time the entry of an order is expected at most.
const OUTBOX_NEAR_MS: i64 = 1000;

/// A range of an outbox, as `XRANGE` takes it.
struct OutboxRange {
    from: String,
    to: String,
}

/// What the segments have of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// No segment has given it units, or all have forgotten it since.
    Nowhere,
    /// It has its units, and the ledger has not recorded it yet.
    Unrecorded(Box<Unrecorded>),
    /// It has its units, and has left the outbox: the ledger has recorded it.
    Recorded,
}

/// An order that has its units and that the ledger has not recorded yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unrecorded {
    /// The order.
    pub order: TakenOrder,
    /// The segment that gave the units.
    pub segment: u16,
    /// End of the hold.
    pub expires_at: Timestamp,
    /// The price of a unit that the buyer was told. `None`: the item's first one.
    pub price: Option<u64>,
}

/// The buyer's home among `segments`.
fn home(buyer: &BuyerId, segments: usize) -> usize {
    usize::from(buyer.home(u16::try_from(segments).unwrap_or(u16::MAX)))
}

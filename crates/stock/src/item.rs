//! One item's stock as this process sees it: its segments and the lanes that lead to them.

use std::{collections::HashSet, sync::Arc, time::Instant};

use domain::{BuyerId, Change, Item, ItemId, OrderId, SegmentKey, TakenOrder};
use futures::future::{join_all, try_join_all};
use jiff::Timestamp;
use redis::Value;

use crate::{
    Answer, Ask, StockError,
    admission::{Admission, Admitted, Hint, Permit},
    checkpoint::{Waiter, Waiters},
    gather,
    keys::{GAVE_BACK, Keys},
    lane::{Batch, Lane},
    outbox::TakenHash,
    reply::Reply,
    script::{
        self, AskBatch, AskReply, Asks, Exception, FinishedWalk, Inspection, InspectionEntries,
    },
    stock::Shared,
    walk::{Acknowledge, Answered, AskRequest, FinishRequest},
};

/// How often an order may find, on its turn, that the unit it waited for is gone and the hint is too old. Units that keep coming
/// back cause that; were it to walk instead of looking once more, each unit would cost a walk for everybody who waits.
const LOOKS_MOST: usize = 64;

/// One item's stock.
pub struct ItemStock {
    /// The item.
    pub id: ItemId,
    pub(crate) segments: Vec<Segment>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) gathering: gather::Gathering,
    refusals: metrics::Counter,
}

/// One segment, and the lanes to it.
pub(crate) struct Segment {
    pub keys: Arc<Keys>,
    pub home: Lane<HomeAsks>,
    pub next: Lane<NextAsks>,
    pub finish: Lane<Finishes>,
}

impl Segment {
    pub(crate) fn number(&self) -> u16 {
        self.keys.segment.segment
    }
}

impl ItemStock {
    pub(crate) fn new(item: &Item, shared: &Arc<Shared>) -> Self {
        let admission = Arc::new(Admission::new(item.segments, shared.settings.hint_lifetime));
        let refusals = metrics::counter!("stockade_hint_refusals_total");
        let segments = (0..item.segments)
            .map(|segment| Self::segment(item, segment, shared, &admission))
            .collect();
        Self {
            id: item.id.clone(),
            segments,
            shared: Arc::clone(shared),
            admission,
            gathering: gather::Gathering::default(),
            refusals,
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
        let place = Place {
            keys: Arc::new(Keys::of(&key)),
            asks: shared.asks(item.durability),
            shared: Arc::clone(shared),
            admission: Arc::clone(admission),
            waiters: shared.checkpoints.of(&key),
        };
        let (batch_max, tasks) = (shared.settings.batch_max, &shared.tasks);
        Segment {
            keys: Arc::clone(&place.keys),
            home: Lane::new(HomeAsks(place.clone()), batch_max, tasks.clone()),
            next: Lane::new(NextAsks(place.clone()), batch_max, tasks.clone()),
            finish: Lane::new(Finishes(place), batch_max, tasks.clone()),
        }
    }

    /// The segments in the order in which this buyer's orders ask them: home first.
    pub(crate) fn ring(&self, buyer: &BuyerId) -> impl Iterator<Item = &Segment> {
        let home = home(buyer, self.segments.len());
        self.segments[home..].iter().chain(&self.segments[..home])
    }

    /// Lets the order in (`Some`) or refuses it by the sold-out hint (`None`).
    pub(crate) async fn admit(&self, ask: &Ask) -> Option<Permit> {
        let (buyer, units) = (ask.buyer.stable_hash(), u64::from(ask.quantity.get()));
        for _ in 0..LOOKS_MOST {
            // After each look: one that has just started knows only then that units lie in fragments, and the walk's answer stands for good.
            if self.admission.is_fragmented(units) {
                gather::wait(self, units, ask.within).await;
            }
            match self.admission.admit(buyer, units).await {
                Admitted::Walk(permit) => return Some(permit),
                Admitted::SoldOut => {
                    self.refusals.increment(1);
                    return None;
                }
                Admitted::Refresh => {
                    if self
                        .admission
                        .refresh(async |before| self.take_hint(before).await)
                        .await
                        .is_err()
                    {
                        break;
                    }
                }
            }
        }
        // Nobody knows. The order walks, and if Redis is the trouble, the walk's own error handling has it.
        Some(self.admission.enter(units))
    }

    async fn take_hint(&self, before: Option<Arc<Hint>>) -> Result<Option<Hint>, StockError> {
        let as_of = Instant::now();
        let segments = self.inspect(InspectionEntries::None).await?;
        for segment in &segments {
            self.admission
                .saw(segment.segment.segment, segment.available);
        }
        if segments.iter().any(|segment| segment.available > 0) {
            return Ok(None);
        }
        let marks: Vec<_> = segments
            .iter()
            .map(|segment| (segment.epoch, segment.last))
            .collect();
        if !self.is_open(&segments) {
            return Ok(Some(Hint::new(as_of, marks, None)));
        }
        let buyers = match before {
            Some(before) if before.marks == marks && before.buyers.is_some() => {
                before.buyers.clone()
            }
            _ => Some(Arc::new(self.buyers().await?)),
        };
        Ok(Some(Hint::new(as_of, marks, buyers)))
    }

    fn is_open(&self, segments: &[Inspection]) -> bool {
        let now = self.shared.clock.now_ms();
        let inside = |segment: &Inspection| {
            segment.opens_ms <= now && (segment.closes_ms == 0 || now < segment.closes_ms)
        };
        let sells = |segment: &Inspection| {
            segment.mending.is_none() && segment.state == domain::ItemState::Open
        };
        // One that has forgotten whom it gave units to would have them turned away.
        segments
            .iter()
            .all(|segment| segment.whole && inside(segment) && sells(segment))
    }

    /// Takes in that units have come back to a segment: the item is not sold out any more.
    pub(crate) fn came_back(&self, segment: u16, available: u64) {
        self.admission.came_back(segment, available);
    }

    /// Takes in that messages may have been missed: what is known of the segments may be out of date.
    pub(crate) fn doubt(&self) {
        self.admission.doubt();
    }

    /// Stable hashes of every buyer who holds anything, walks, or has given something back.
    async fn buyers(&self) -> Result<HashSet<u64>, StockError> {
        let mut all = HashSet::new();
        for buyers in
            try_join_all(self.segments.iter().map(|segment| self.buyers_of(segment))).await?
        {
            all.extend(buyers);
        }
        Ok(all)
    }

    async fn buyers_of(&self, segment: &Segment) -> Result<Vec<u64>, StockError> {
        let mut hashes = Vec::new();
        let mut cursor = 0;
        loop {
            let mut cmd = redis::cmd("HSCAN");
            cmd.arg(&segment.keys.buyers)
                .arg(cursor)
                .arg("COUNT")
                .arg(1000);
            let reply: Value = self.shared.bulk.query(&cmd).await?;
            let mut reply = Reply::new(reply)?;
            cursor = reply.unsigned()?;
            let mut fields = reply.list()?;
            while !fields.is_empty() {
                let buyer = fields.text()?;
                let _count = fields.value();
                // The placeholder that open_segment left is nobody.
                hashes.extend(
                    BuyerId::new(buyer.trim_start_matches(GAVE_BACK))
                        .map(|buyer| buyer.stable_hash()),
                );
            }
            if cursor == 0 {
                return Ok(hashes);
            }
        }
    }

    /// Every segment as it is now; each is one moment, all of them together are not.
    pub async fn inspect(&self, entries: InspectionEntries) -> Result<Vec<Inspection>, StockError> {
        let inspect = |segment| inspect_segment(&self.shared, segment, entries);
        join_all(self.segments.iter().map(inspect))
            .await
            .into_iter()
            .collect()
    }

    /// An order that has its units and that the ledger does not have yet. It is in the outbox of the segment that gave them.
    pub async fn find_unrecorded(&self, order: OrderId) -> Result<Option<Unrecorded>, StockError> {
        for segment in &self.segments {
            let mut cmd = redis::cmd("HGET");
            cmd.arg(&segment.keys.answers).arg(&order.as_bytes()[..]);
            let stored: Option<Vec<u8>> =
                cmd.query_async(&mut self.shared.connection.clone()).await?;
            if let Some(Answer::Taken { .. }) = stored.as_deref().map(Answer::parse).transpose()? {
                return self.find_in_outbox(segment, order).await;
            }
        }
        Ok(None)
    }

    async fn find_in_outbox(
        &self,
        segment: &Segment,
        wanted: OrderId,
    ) -> Result<Option<Unrecorded>, StockError> {
        let entries = inspect_segment(&self.shared, segment, InspectionEntries::All)
            .await?
            .entries;
        let found = entries.into_iter().find_map(|entry| match entry.change {
            Change::Taken { expires_at, orders } => {
                let order = orders.into_iter().find(|order| order.id == wanted)?;
                Some(Unrecorded {
                    order,
                    segment: segment.number(),
                    expires_at,
                })
            }
            _ => None,
        });
        Ok(found)
    }
}

/// An order that has its units and is on its way to the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unrecorded {
    /// The order.
    pub order: TakenOrder,
    /// The segment that gave the units.
    pub segment: u16,
    /// When the hold is over.
    pub expires_at: Timestamp,
}

async fn inspect_segment(
    shared: &Shared,
    segment: &Segment,
    entries: InspectionEntries,
) -> Result<Inspection, StockError> {
    script::inspect(&shared.connection, &segment.keys, entries).await
}

/// The buyer's home among `segments`.
pub(crate) fn home(buyer: &BuyerId, segments: usize) -> usize {
    usize::from(buyer.home(u16::try_from(segments).unwrap_or(u16::MAX)))
}

/// What every lane of a segment needs.
#[derive(Clone)]
pub(crate) struct Place {
    keys: Arc<Keys>,
    asks: Asks,
    shared: Arc<Shared>,
    admission: Arc<Admission>,
    waiters: Arc<Waiters>,
}

/// Asks at home.
pub(crate) struct HomeAsks(Place);

/// Asks at a later segment of the ring.
pub(crate) struct NextAsks(Place);

/// Walks to be made final here, at their home.
pub(crate) struct Finishes(Place);

impl HomeAsks {
    /// The latest deadline of the batch is everybody's. Home remembers it for each of them, so it does no harm; the earliest one
    /// would let a single order whose time is almost up have the whole batch refused.
    fn deadline_ms(requests: &[AskRequest]) -> i64 {
        requests
            .iter()
            .map(|request| request.deadline_ms)
            .max()
            .unwrap_or(0)
    }
}

impl NextAsks {
    /// The earliest deadline of the batch is everybody's: no later segment may obey an order after the deadline that home remembers.
    fn deadline_ms(requests: &[AskRequest]) -> i64 {
        requests
            .iter()
            .map(|request| request.deadline_ms)
            .min()
            .unwrap_or(0)
    }
}

impl Batch for HomeAsks {
    type Request = AskRequest;

    fn order(request: &AskRequest) -> OrderId {
        request.asked.id
    }

    fn is_abandoned(&self, request: &AskRequest) -> bool {
        request.sender.is_closed()
    }

    async fn send(&self, requests: Vec<AskRequest>) {
        let place = &self.0;
        let deadline_ms = Self::deadline_ms(&requests);
        let (batch, margin_ms) = (
            batch(&requests, deadline_ms),
            place.shared.settings.forget_margin_ms(),
        );
        let reply = script::ask_home(&place.asks, &place.keys, &batch, margin_ms).await;
        place.answer("home", requests, deadline_ms, reply);
    }
}

impl Batch for NextAsks {
    type Request = AskRequest;

    fn order(request: &AskRequest) -> OrderId {
        request.asked.id
    }

    fn is_abandoned(&self, request: &AskRequest) -> bool {
        request.sender.is_closed()
    }

    async fn send(&self, requests: Vec<AskRequest>) {
        let place = &self.0;
        let deadline_ms = Self::deadline_ms(&requests);
        let reply =
            script::ask_next(&place.asks, &place.keys, &batch(&requests, deadline_ms)).await;
        place.answer("next", requests, deadline_ms, reply);
    }
}

fn batch(requests: &[AskRequest], deadline_ms: i64) -> AskBatch<'_> {
    AskBatch {
        asked: requests.iter().map(|request| &*request.asked).collect(),
        deadline_ms,
    }
}

impl Place {
    fn answer(
        &self,
        script: &'static str,
        requests: Vec<AskRequest>,
        deadline_ms: i64,
        reply: Result<AskReply, StockError>,
    ) {
        #[expect(clippy::cast_precision_loss, reason = "a batch is far below 2^52")]
        metrics::histogram!("stockade_batch_orders", "ask" => script).record(requests.len() as f64);
        match reply {
            Ok(reply) => self.answer_each(requests, deadline_ms, &reply),
            Err(error) => {
                tracing::debug!(segment = %self.keys.name, %error, orders = requests.len(), "a batch failed");
                for request in requests {
                    let _ = request.sender.send(Err(error.clone()));
                }
            }
        }
    }

    fn answer_each(&self, requests: Vec<AskRequest>, deadline_ms: i64, reply: &AskReply) {
        self.shared.clock.observe(reply.now_ms);
        self.admission
            .saw(self.keys.segment.segment, reply.available);
        let mut exceptions = reply.exceptions.iter().peekable();
        let mut waiters = Vec::with_capacity(requests.len());
        let mut hash = TakenHash::new(reply.expires_ms);
        for (index, request) in requests.into_iter().enumerate() {
            match exceptions.next_if(|(at, _)| *at == index) {
                Some((_, exception)) => answer_exception(request, *exception, deadline_ms, reply),
                None => {
                    hash.take(&request.asked.packed);
                    waiters.extend(answer_taken(request, reply));
                }
            }
        }
        if !waiters.is_empty() {
            self.waiters.wait(reply.entry, hash.fingerprint(), waiters);
        }
    }
}

/// The order has its units. If its buyer waits for the ledger, who waits.
fn answer_taken(request: AskRequest, reply: &AskReply) -> Option<Waiter> {
    match request.acknowledge {
        Acknowledge::Recorded => Some(Waiter {
            order: request.asked.id,
            expires_ms: reply.expires_ms,
            sender: request.sender,
        }),
        Acknowledge::Accepted => {
            let _ = request.sender.send(Ok(Answered::Taken {
                expires_ms: reply.expires_ms,
                recorded: false,
            }));
            None
        }
    }
}

fn answer_exception(request: AskRequest, exception: Exception, deadline_ms: i64, reply: &AskReply) {
    let answer = match exception {
        Exception::Passed => Answered::Passed {
            permit: request.permit,
            deadline_ms,
        },
        // Home takes the deadline of this attempt for its own when it is the later one, so it is covered.
        Exception::Answered(known) => match known {
            Answer::Passed { quantity, .. } if quantity == request.asked.quantity => {
                Answered::Passed {
                    permit: request.permit,
                    deadline_ms,
                }
            }
            known => Answered::Known(known),
        },
        Exception::SoldOut => Answered::SoldOut,
        Exception::LimitReached => Answered::LimitReached,
        Exception::NotOpen => Answered::NotOpen(reply.gate.clone()),
    };
    // A buyer who has gone away is no error.
    let _ = request.sender.send(Ok(answer));
}

impl Batch for Finishes {
    type Request = FinishRequest;

    fn order(request: &FinishRequest) -> OrderId {
        request.asked.id
    }

    /// The earliest deadline of the batch is everybody's, so one that is late would have all of it refused. Its walk is in the list, and
    /// whoever works that off ends it.
    fn is_abandoned(&self, request: &FinishRequest) -> bool {
        request.deadline_ms <= self.0.shared.clock.now_ms()
    }

    async fn send(&self, requests: Vec<FinishRequest>) {
        let place = &self.0;
        let deadline_ms = requests
            .iter()
            .map(|request| request.deadline_ms)
            .min()
            .unwrap_or(0);
        let walks: Vec<_> = requests
            .iter()
            .map(|request| FinishedWalk {
                asked: &request.asked,
                end: request.end,
            })
            .collect();
        let margin_ms = place.shared.settings.forget_margin_ms();
        match script::finish_walk(
            &place.shared.connection,
            &place.keys,
            deadline_ms,
            margin_ms,
            &walks,
        )
        .await
        {
            Ok(_) => {
                for request in requests {
                    let _ = request.done.send(());
                }
            }
            // The walks stay in the list, and whoever works it off repeats them.
            Err(error) => {
                tracing::debug!(segment = %place.keys.name, %error, walks = walks.len(), "walks not finished yet")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use domain::{BuyerId, OrderId, Quantity};
    use tokio::sync::oneshot;

    use super::{HomeAsks, NextAsks};
    use crate::{
        script::Asked,
        walk::{Acknowledge, AskRequest},
    };

    fn request(deadline_ms: i64) -> AskRequest {
        let asked = Asked::new(
            OrderId::from_bytes([1; 16]),
            BuyerId::new("ann").unwrap(),
            Quantity::ONE,
        );
        let (sender, _) = oneshot::channel();
        AskRequest {
            asked: Arc::new(asked),
            acknowledge: Acknowledge::Accepted,
            deadline_ms,
            permit: None,
            sender,
        }
    }

    #[test]
    fn home_goes_by_the_latest_deadline_of_a_batch_and_every_later_segment_by_the_earliest() {
        let requests = [request(5), request(9), request(7)];
        assert_eq!(
            HomeAsks::deadline_ms(&requests),
            9,
            "one order in a hurry must not have the others refused"
        );
        assert_eq!(
            NextAsks::deadline_ms(&requests),
            5,
            "nobody may be obeyed after what home remembers"
        );
    }
}

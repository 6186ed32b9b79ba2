//! The batches of a segment: reservations at home and at later segments, and final spillovers.

use std::sync::Arc;

use domain::OrderId;

use crate::{
    StockError,
    admission::Admission,
    batcher::Batch,
    checkpoint::{Waiter, Waiters},
    decision::Decision,
    keys::Keys,
    outbox::TakenHash,
    replies::together,
    request::{Acknowledge, FinishRequest, Reply, ReserveRequest},
    script::{self, ReserveReply, Transport},
    shared::Shared,
};

/// What every batcher of a segment needs.
#[derive(Clone)]
pub(super) struct SegmentContext {
    pub keys: Arc<Keys>,
    pub transport: Transport,
    pub shared: Arc<Shared>,
    pub admission: Arc<Admission>,
    pub waiters: Arc<Waiters>,
}

/// Reservations at a segment, of orders that come to it in this way.
pub(super) struct Reservations(pub SegmentContext, pub Way);

/// How an order comes to a segment.
#[derive(Debug, Clone, Copy)]
pub(super) enum Way {
    /// The segment is the home of its buyer.
    Home,
    /// The segment is a later one of the ring.
    Next,
    /// A later round has come to the segment.
    Again,
}

/// Spillovers to make final here, at their home.
pub(super) struct Finishes(pub SegmentContext);

impl Way {
    /// One deadline applies to all of a batch.
    ///
    /// Home stores it for each order, so the latest one does no harm. With the earliest one, a
    /// single order near its time limit would have the whole batch refused.
    ///
    /// No later segment, and none in a later round, may take for an order after the deadline that
    /// home has stored, so there it is the earliest one.
    fn deadline_ms(self, requests: &[ReserveRequest]) -> i64 {
        let deadlines = requests.iter().map(|request| request.deadline_ms);
        let deadline = match self {
            Self::Home => deadlines.max(),
            Self::Next | Self::Again => deadlines.min(),
        };
        deadline.unwrap_or(0)
    }

    /// The word of the metric.
    fn as_str(self) -> &'static str {
        match self {
            Self::Home => "home",
            Self::Next => "next",
            Self::Again => "again",
        }
    }
}

impl Batch for Reservations {
    type Request = ReserveRequest;

    fn order(request: &ReserveRequest) -> OrderId {
        request.order.id
    }

    fn is_abandoned(&self, request: &ReserveRequest) -> bool {
        request.sender.is_closed()
    }

    async fn send(&self, requests: Vec<ReserveRequest>) {
        let Self(context, way) = self;
        let (transport, keys) = (&context.transport, &context.keys);
        let deadline_ms = way.deadline_ms(&requests);
        let margin_ms = context.shared.settings.forget_margin_ms();
        let reply = match way {
            Way::Home => {
                script::reserve_home(transport, keys, &requests, deadline_ms, margin_ms).await
            }
            Way::Next => script::reserve_next(transport, keys, &requests, deadline_ms).await,
            Way::Again => {
                script::reserve_again(transport, keys, &requests, deadline_ms, margin_ms).await
            }
        };
        context.reply(way.as_str(), requests, deadline_ms, reply);
    }
}

impl SegmentContext {
    fn reply(
        &self,
        script: &'static str,
        requests: Vec<ReserveRequest>,
        deadline_ms: i64,
        reply: Result<ReserveReply, StockError>,
    ) {
        #[expect(clippy::cast_precision_loss, reason = "a batch is far below 2^52")]
        let size = requests.len() as f64;
        metrics::histogram!("stockade_batch_orders", "script" => script).record(size);
        match reply {
            Ok(reply) => together(|| self.reply_to_each(requests, deadline_ms, reply)),
            Err(error) => {
                let (segment, orders) = (&self.keys.name, requests.len());
                tracing::debug!(%segment, %error, orders, "batch of reservations failed");
                together(|| {
                    for request in requests {
                        request.sender.send(Err(error.clone()));
                    }
                });
            }
        }
    }

    fn reply_to_each(&self, requests: Vec<ReserveRequest>, deadline_ms: i64, reply: ReserveReply) {
        self.shared.clock.observe(reply.now_ms);
        self.admission
            .saw(self.keys.segment.segment, reply.available);
        let mut exceptions = reply.exceptions.into_iter().peekable();
        let mut waiters = Vec::with_capacity(requests.len());
        let mut hash = TakenHash::new(reply.expires_ms, reply.price);
        for (index, request) in requests.into_iter().enumerate() {
            match exceptions.next_if(|(at, _)| *at == index) {
                Some((_, exception)) => reply_exception(request, exception, deadline_ms),
                None => {
                    hash.take(&request.order.packed);
                    waiters.extend(reply_taken(request, reply.expires_ms, reply.price));
                }
            }
        }
        if !waiters.is_empty() {
            self.waiters.wait(reply.entry, hash.fingerprint(), waiters);
        }
    }
}

/// The order has its units. Returns the waiter, if the order waits for the ledger.
fn reply_taken(request: ReserveRequest, expires_ms: i64, price: Option<u64>) -> Option<Waiter> {
    match request.acknowledge {
        Acknowledge::Recorded => Some(Waiter {
            order: request.order.id,
            expires_ms,
            price,
            sender: request.sender,
        }),
        Acknowledge::Accepted => {
            request.sender.send(Ok(Reply::Taken {
                expires_ms,
                price,
                recorded: false,
            }));
            None
        }
    }
}

fn reply_exception(request: ReserveRequest, exception: Reply, deadline_ms: i64) {
    let declined = match exception {
        Reply::Declined { .. } => Some(request.round),
        // Home stores the deadline of this attempt if it is the later one, so it is covered.
        Reply::Decided(Decision::Declined {
            quantity, round, ..
        }) if quantity == request.order.quantity => Some(round),
        _ => None,
    };
    let reply = match declined {
        Some(round) => Reply::Declined {
            permit: request.permit,
            deadline_ms,
            round,
        },
        None => exception,
    };
    request.sender.send(Ok(reply));
}

impl Batch for Finishes {
    type Request = FinishRequest;

    fn order(request: &FinishRequest) -> OrderId {
        request.order.id
    }

    /// The earliest deadline applies to the whole batch, so a late request would have all of it
    /// refused. Its spillover is in the list, and the worker ends it.
    fn is_abandoned(&self, request: &FinishRequest) -> bool {
        request.deadline_ms <= self.0.shared.clock.now_ms()
    }

    async fn send(&self, requests: Vec<FinishRequest>) {
        let context = &self.0;
        let deadlines = requests.iter().map(|request| request.deadline_ms);
        let deadline_ms = deadlines.min().unwrap_or(0);
        let margin_ms = context.shared.settings.forget_margin_ms();
        let connection = &context.shared.connection;
        match script::finish_spillover(connection, &context.keys, deadline_ms, margin_ms, &requests)
            .await
        {
            Ok(decisions) => {
                for (request, decision) in requests.into_iter().zip(decisions) {
                    let _ = request.done.send(decision);
                }
            }
            // The spillovers stay in the list, and the worker repeats them.
            Err(error) => {
                let (segment, spillovers) = (&context.keys.name, requests.len());
                tracing::debug!(%segment, %error, spillovers, "failed to finish spillovers");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use domain::{BuyerId, OrderId, Quantity};

    use super::Way;
    use crate::{
        replies::ReplySender,
        request::{Acknowledge, PackedOrder, ReserveRequest},
    };

    fn request(deadline_ms: i64) -> ReserveRequest {
        let order = PackedOrder::new(
            OrderId::from_bytes([1; 16]),
            BuyerId::new("ann").unwrap(),
            Quantity::ONE,
        );
        let (sender, _) = ReplySender::new();
        ReserveRequest {
            round: 0,
            is_home: true,
            order: Arc::new(order),
            acknowledge: Acknowledge::Accepted,
            deadline_ms,
            permit: None,
            sender,
        }
    }

    #[test]
    fn home_applies_the_latest_deadline_of_a_batch_and_later_segments_the_earliest() {
        let requests = [request(5), request(9), request(7)];
        assert_eq!(
            Way::Home.deadline_ms(&requests),
            9,
            "an order near its time limit must not have the others refused"
        );
        for later in [Way::Next, Way::Again] {
            assert_eq!(
                later.deadline_ms(&requests),
                5,
                "no segment may take after the deadline that home has stored"
            );
        }
    }
}

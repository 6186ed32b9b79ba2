//! Orders of several buyers in one request.
//!
//! HTTP is the narrowest part of a sale: a request costs the service more than the order in it. An
//! [`OrderBatcher`] therefore collects the orders that arrive while its requests are under way, and
//! sends them together when one returns. There is no timer: a lone order leaves at once, and under
//! load the batches grow by themselves.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};

use crate::{
    Admin, BuyerOrder, Content, Error, IdempotencyKey, NewOrder, Placed, Response, UnknownCause,
    attempts::Attempts,
};

/// Orders of one request, at most.
const ORDERS_MAX: usize = 512;
/// Requests that are under way at the same time.
const FLIGHTS: usize = 2;

/// Places the orders of many buyers for one item, as a shop's backend does.
///
/// ```no_run
/// # async fn example(admin: &client::Admin) -> Result<(), client::Error> {
/// use client::{IdempotencyKey, OrderBatcher};
///
/// // Once for the item. Each request of the shop uses a clone.
/// let batcher = OrderBatcher::new(admin, "maotai");
/// let placed = batcher.order("ann", 1, IdempotencyKey::new("cart-7")?).await?;
/// println!("order {} is {}", placed.order.id, placed.order.state);
/// # Ok(())
/// # }
/// ```
///
/// Clones share their requests. An order whose outcome is unknown is sent again with the same key,
/// for as long as the client's [`RetryPolicy`](crate::RetryPolicy) allows.
#[derive(Clone, Debug)]
pub struct OrderBatcher {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    admin: Admin,
    item: String,
    flights_max: usize,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    flights: usize,
}

/// An order that waits for its next request, or for its result.
#[derive(Debug)]
struct Waiting {
    order: BuyerOrder,
    /// The requests that it was part of.
    attempts: Attempts,
    /// No further request begins after it.
    deadline: Instant,
    reply: oneshot::Sender<Result<Placed, Error>>,
}

/// The body of a request.
#[derive(Serialize)]
pub(crate) struct Body<'a> {
    pub orders: &'a [BuyerOrder],
}

#[derive(Deserialize)]
struct Results {
    results: Vec<Box<RawValue>>,
}

/// The fields of a result that are status and headers in the response to a single order.
#[derive(Deserialize)]
struct Head {
    status: u16,
    #[serde(default)]
    replayed: bool,
    #[serde(default)]
    retry_after: Option<u64>,
}

/// Reads the response to a batch: a result for each order, in the same order.
pub(crate) fn read(
    item: &str,
    orders: &[BuyerOrder],
    response: &Response,
) -> Result<Vec<Result<Placed, Error>>, Error> {
    let Results { results } = response.json()?;
    if results.len() != orders.len() {
        return Err(Error::Contract {
            status: response.status,
            violation: format!("{} results for {} orders", results.len(), orders.len()),
        });
    }
    let lines = orders.iter().zip(&results);
    // The lines have no type of their own: they are the service's if the whole response is.
    let content = match response.content {
        Content::Json => Content::Problem,
        other => other,
    };
    Ok(lines
        .map(|(order, result)| read_line(item, order, result, content))
        .collect())
}

/// Reads a result as the response to a single order.
fn read_line(
    item: &str,
    order: &BuyerOrder,
    result: &RawValue,
    content: Content,
) -> Result<Placed, Error> {
    let line = |head: Head| Response {
        status: head.status,
        replayed: head.replayed,
        retry_after: head.retry_after,
        version: None,
        content,
        body: result.get().to_owned().into(),
    };
    let head = serde_json::from_str(result.get()).map_err(|error| Error::Contract {
        status: 200,
        violation: format!("a result is not the documented JSON: {error}"),
    })?;
    let response = line(head).into_success()?;
    let new = NewOrder::new(item, order.quantity).with_key(order.key.clone());
    let new = match order.amount {
        Some(amount) => new.with_amount(amount),
        None => new,
    };
    new.read(&response)?.with_units()
}

impl OrderBatcher {
    /// A batcher for `item`, with two requests under way at the same time.
    pub fn new(admin: &Admin, item: impl Into<String>) -> Self {
        Self::with_flights(admin, item, FLIGHTS)
    }

    /// The same with another number of requests at the same time, at least one.
    pub fn with_flights(admin: &Admin, item: impl Into<String>, flights: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                admin: admin.clone(),
                item: item.into(),
                flights_max: flights.max(1),
                queue: Mutex::default(),
            }),
        }
    }

    /// Places an order, and repeats it with the same key while its outcome is unknown.
    ///
    /// A repeat of an order that has units succeeds too; one that has ended since is
    /// [`Error::NoLongerHeld`]. If the future is dropped, the order may be placed all the same.
    /// Needs a Tokio runtime.
    pub async fn order(
        &self,
        buyer: &str,
        quantity: u32,
        key: IdempotencyKey,
    ) -> Result<Placed, Error> {
        let order = BuyerOrder {
            buyer: buyer.to_owned(),
            quantity,
            key,
            amount: None,
        };
        self.place(order).await
    }

    /// [`OrderBatcher::order`] for an order that may have an amount.
    pub async fn place(&self, order: BuyerOrder) -> Result<Placed, Error> {
        let (reply, result) = oneshot::channel();
        self.shared.enqueue(Waiting {
            order,
            attempts: Attempts::default(),
            deadline: Instant::now() + self.shared.admin.retry().deadline,
            reply,
        });
        result.await.unwrap_or_else(|_| {
            Err(Error::OutcomeUnknown {
                attempts: 1,
                cause: Box::new(UnknownCause::Abandoned),
            })
        })
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the order to a request that is under way, or begins one.
    fn enqueue(self: &Arc<Self>, waiting: Waiting) {
        let mut queue = self.queue();
        queue.waiting.push_back(waiting);
        if queue.flights < self.flights_max {
            queue.flights += 1;
            tokio::spawn(Arc::clone(self).fly());
        }
    }

    /// Sends what waits, request by request, until nothing waits.
    async fn fly(self: Arc<Self>) {
        while let Some(mut batch) = self.next_batch() {
            for waiting in &mut batch {
                waiting.attempts.begin();
            }
            let orders: Vec<_> = batch.iter().map(|waiting| waiting.order.clone()).collect();
            let results = self.send(&orders).await;
            for (waiting, result) in batch.into_iter().zip(results) {
                self.settle(waiting, result);
            }
        }
    }

    /// `None`: nothing waits, and the flight has ended.
    fn next_batch(&self) -> Option<Vec<Waiting>> {
        let mut queue = self.queue();
        // An order that was never sent, and that its caller has given up, need not be placed.
        queue
            .waiting
            .retain(|waiting| waiting.attempts.count() > 0 || !waiting.reply.is_closed());
        if queue.waiting.is_empty() {
            queue.flights -= 1;
            return None;
        }
        let count = queue.waiting.len().min(ORDERS_MAX);
        Some(queue.waiting.drain(..count).collect())
    }

    async fn send(&self, orders: &[BuyerOrder]) -> Vec<Result<Placed, Error>> {
        match self.admin.place_batch_once(&self.item, orders).await {
            Ok(results) => results,
            Err(error) => vec![Err(error); orders.len()],
        }
    }

    fn settle(self: &Arc<Self>, mut waiting: Waiting, result: Result<Placed, Error>) {
        let error = match result {
            Err(error) => waiting.attempts.judge(error),
            placed => return waiting.answer(placed),
        };
        let attempts = waiting.attempts.count();
        let pause = (self.admin.retry()).pause_after(attempts, error.retry_after());
        let left = waiting.deadline.saturating_duration_since(Instant::now());
        let is_late = left < pause;
        if !error.is_retryable() || is_late || waiting.reply.is_closed() {
            return waiting.answer(Err(error));
        }
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            sleep(pause).await;
            shared.enqueue(waiting);
        });
    }
}

impl Waiting {
    fn answer(self, result: Result<Placed, Error>) {
        // The receiver is gone if the future was dropped.
        let _ = self.reply.send(result);
    }
}

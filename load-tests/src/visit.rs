//! A buyer at the counter: what kinds of buyers are written in.
//!
//! Every request is judged, entered in our books and told to goose here, so that a kind of buyer cannot forget it.

use std::{sync::Arc, time::Duration};

use goose::goose::{GooseUser, TransactionError};
use reqwest::header::HeaderValue;
use tokio::time::sleep;

use crate::{
    answer::Answer,
    crowd::Guest,
    judge::{self, Flaw, Standing},
    sale::{Asked, Attempt, Sale, Settled},
    tally::Answered,
};

/// What a step of a visit comes to; `None` if the run has made all its requests.
pub type Step<T> = Result<Option<T>, Box<TransactionError>>;

/// A request and its answer.
#[derive(Debug)]
pub struct Asking {
    asked: Asked,
    /// The answer.
    pub answer: Answer,
}

/// A buyer's visit.
pub struct Visit<'a> {
    sale: Arc<Sale>,
    user: &'a mut GooseUser,
    guest: Guest,
    /// Units that the buyer was given in this visit.
    held: u32,
    /// Orders in this visit.
    orders: u32,
}

impl<'a> Visit<'a> {
    /// The visit of `guest`, on this user's connection.
    pub fn new(sale: Arc<Sale>, user: &'a mut GooseUser, guest: Guest) -> Self {
        Self { sale, user, guest, held: 0, orders: 0 }
    }

    /// What the buyer's whims are decided with.
    pub fn dice(&self) -> u64 {
        self.guest.dice
    }

    /// Units that one buyer may hold.
    pub fn limit(&self) -> u32 {
        self.sale.limit
    }

    /// Lets time pass.
    pub async fn wait(&self, time: Duration) {
        sleep(time).await;
    }

    /// Places an order; `name` is what the report calls it.
    pub async fn order(&mut self, name: &str, quantity: u32) -> Step<Asking> {
        match self.sale.budget.take(1) {
            0 => Ok(None),
            _ => self.place(name, quantity).await.map(Some),
        }
    }

    /// Makes a request again that was answered.
    pub async fn repeat(&mut self, name: &str, first: &Asking) -> Step<Asking> {
        if self.sale.budget.take(1) == 0 {
            return Ok(None);
        }
        let settled = self.sale.ask(&self.user.client, &first.asked).await;
        let flaw = judge::repeat(&first.answer, &settled.last.answer);
        self.finish(name, first.asked.clone(), settled, flaw).await.map(Some)
    }

    /// Makes the same request twice at once: a double click.
    pub async fn order_twice(&mut self, name: &str, again: &str, quantity: u32) -> Step<()> {
        match self.sale.budget.take(2) {
            0 => Ok(None),
            1 => self.place(name, quantity).await.map(|_| Some(())),
            _ => self.twins(name, again, quantity).await.map(Some),
        }
    }

    async fn place(&mut self, name: &str, quantity: u32) -> Result<Asking, Box<TransactionError>> {
        let asked = self.next_order(quantity);
        let settled = self.sale.ask(&self.user.client, &asked).await;
        let flaw = judge::new_order(&settled.last.answer, quantity, self.standing());
        self.finish(name, asked, settled, flaw).await
    }

    async fn twins(&mut self, name: &str, again: &str, quantity: u32) -> Result<(), Box<TransactionError>> {
        let asked = self.next_order(quantity);
        let client = &self.user.client;
        let (one, other) = futures::join!(self.sale.ask(client, &asked), self.sale.ask(client, &asked));
        let flaw = judge::new_order(&one.last.answer, quantity, self.standing());
        let flaw_of_twin = judge::twins(&one.last.answer, &other.last.answer);
        self.finish(name, asked.clone(), one, flaw).await?;
        self.finish(again, asked, other, flaw_of_twin).await?;
        Ok(())
    }

    fn next_order(&mut self, quantity: u32) -> Asked {
        let key = format!("visit-{}-{}", self.guest.visit, self.orders);
        self.orders += 1;
        let key = HeaderValue::try_from(key).unwrap_or_else(|_| HeaderValue::from_static("visit"));
        Asked { buyer: self.guest.buyer, key, quantity }
    }

    fn standing(&self) -> Standing {
        Standing { held: self.held, limit: self.sale.limit, may_return: self.guest.may_return }
    }

    async fn finish(&mut self, name: &str, asked: Asked, settled: Settled, flaw: Option<Flaw>) -> Result<Asking, Box<TransactionError>> {
        let is_new = self.enter(&asked, &settled, flaw);
        if is_new {
            self.held += asked.quantity;
        }
        for attempt in &settled.unknown {
            self.tell_goose(name, attempt, None).await?;
        }
        self.tell_goose(name, &settled.last, flaw).await?;
        Ok(Asking { asked, answer: settled.last.answer })
    }

    /// Enters the request in our books, and says whether it placed an order.
    fn enter(&self, asked: &Asked, settled: &Settled, flaw: Option<Flaw>) -> bool {
        if matches!(settled.last.answer, Answer::Unknown(_)) {
            // The service is gone: everybody else would wait for it as long.
            self.sale.budget.close();
        }
        // An outcome that could not be told at once is an error, even if the same key told it later.
        let unknown = settled.unknown.first().map(|attempt| wrong(&attempt.answer));
        let mut tally = self.sale.tally();
        let before = tally.orders.len();
        tally.enter(&Answered {
            buyer: asked.buyer,
            quantity: asked.quantity,
            answer: &settled.last.answer,
            flaw: flaw.or(unknown.flatten()),
            took: settled.took,
            at: self.sale.elapsed(),
        });
        tally.orders.len() > before
    }

    /// Expected refusals are no failures, which goose's own way of making requests would first count them as.
    async fn tell_goose(&mut self, name: &str, attempt: &Attempt, flaw: Option<Flaw>) -> Result<(), Box<TransactionError>> {
        let error = flaw.or(wrong(&attempt.answer));
        self.user.record_custom_request_duration("POST", name, attempt.took, error.is_none(), attempt.status, error).await
    }
}

fn wrong(answer: &Answer) -> Option<&str> {
    match answer {
        Answer::Unknown(what) | Answer::Wrong(what) => Some(what),
        Answer::Held { .. } | Answer::SoldOut | Answer::Limited => None,
    }
}

//! A buyer at the counter: what kinds of buyers are written in.
//!
//! Every request is judged, entered in our books and told to goose here, so that a kind of buyer cannot forget it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::join_all;
use goose::goose::{GooseUser, TransactionError};
use reqwest::header::HeaderValue;
use tokio::time::sleep;

use crate::{
    answer::Answer,
    crowd::Guest,
    judge::{self, Flaw, Standing},
    life::{self, Known},
    sale::{Attempt, Sale, Settled},
    tally::Answered,
    wish::{Asked, Placed, State, Wish},
};

/// What a step of a visit comes to; `None` if the run has made all its requests.
pub type Step<T> = Result<Option<T>, Box<TransactionError>>;

/// The service ends a hold by its own clock.
const CLOCKS_DIFFER: Duration = Duration::from_millis(200);

/// An order request and its answer.
#[derive(Debug)]
pub struct Asking {
    asked: Asked,
    began: Instant,
    /// The answer.
    pub answer: Answer,
}

/// An order that the buyer of this visit has, and nobody else touches.
#[derive(Debug)]
pub struct Own {
    placed: Placed,
    began: Instant,
    payment: Option<String>,
    /// Where it stands.
    pub state: State,
}

/// How a client is impatient.
#[derive(Debug, Clone, Copy)]
pub struct Storm {
    /// Rounds of requests before the client waits for an answer.
    pub rounds: u32,
    /// Connections on which each round makes the request at once.
    pub copies: u32,
    /// How long it waits for the answers of a round.
    pub patience: Duration,
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
        Self {
            sale,
            user,
            guest,
            held: 0,
            orders: 0,
        }
    }

    /// What the buyer's whims are decided with. Their lower half has decided the kind.
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

    /// Lets time pass until the hold of the order is over by every clock.
    pub async fn wait_until_over(&self, own: &Own) {
        sleep((self.hold() + CLOCKS_DIFFER).saturating_sub(own.began.elapsed())).await;
    }

    fn hold(&self) -> Duration {
        self.sale.items.get(self.guest.item).hold
    }

    fn units_return(&self) -> bool {
        self.sale.items.get(self.guest.item).shelf.returns()
    }

    /// Places an order; `name` is what the report calls it.
    pub async fn order(&mut self, name: &str, quantity: u32) -> Step<Asking> {
        match self.sale.budget.take(1) {
            0 => Ok(None),
            _ => self.place(name, quantity).await.map(Some),
        }
    }

    /// The order that was asked for, if the buyer has it.
    pub fn own(&self, asking: &Asking) -> Option<Own> {
        let (Answer::Held { id, .. }, Wish::Order { quantity, .. }) =
            (&asking.answer, &asking.asked.wish)
        else {
            return None;
        };
        Some(Own {
            placed: Placed {
                id: *id,
                quantity: *quantity,
            },
            began: asking.began,
            payment: None,
            state: State::Held,
        })
    }

    /// Makes a request again that was answered.
    pub async fn repeat(&mut self, name: &str, first: &Asking) -> Step<Asking> {
        let units_return = self.units_return();
        self.again(name, first, |answer| {
            judge::repeat(&first.answer, answer, units_return)
        })
        .await
    }

    /// Makes the request again by which this order was placed, after it has gone on.
    pub async fn repeat_of(&mut self, name: &str, first: &Asking, own: &Own) -> Step<Asking> {
        let may_have_expired = own.state == State::Held && self.may_be_over(own.began);
        let states = if may_have_expired {
            vec![State::Held, State::Expired]
        } else {
            vec![own.state]
        };
        self.again(name, first, |answer| {
            judge::repeat_of(own.placed.id, &states, answer)
        })
        .await
    }

    async fn again(
        &mut self,
        name: &str,
        first: &Asking,
        judge: impl FnOnce(&Answer) -> Option<Flaw>,
    ) -> Step<Asking> {
        if self.sale.budget.take(1) == 0 {
            return Ok(None);
        }
        let settled = self.sale.ask(&self.user.client, &first.asked).await;
        let flaw = judge(&settled.last.answer);
        self.finish(name, first.asked.clone(), settled, flaw)
            .await
            .map(Some)
    }

    /// Makes the same request twice at once: a double click.
    pub async fn order_twice(&mut self, name: &str, again: &str, quantity: u32) -> Step<()> {
        match self.sale.budget.take(2) {
            0 => Ok(None),
            1 => self.place(name, quantity).await.map(|_| Some(())),
            _ => self.twins(name, again, quantity).await.map(Some),
        }
    }

    /// Makes the same request again and again, on several connections, and waits only for the last answer.
    pub async fn storm(&mut self, name: &str, quantity: u32, storm: Storm) -> Step<()> {
        // Whatever the storm leaves open, the last request tells, so there must be one.
        if self.sale.budget.take(1) == 0 {
            return Ok(None);
        }
        let asked = self.next_order(quantity);
        let mut attempts = Vec::new();
        for _ in 0..storm.rounds {
            let copies = self.sale.budget.take(u64::from(storm.copies));
            attempts.extend(
                join_all((0..copies).map(|_| {
                    self.sale
                        .ask_once(&self.user.client, &asked, storm.patience)
                }))
                .await,
            );
        }
        let last = self.sale.ask(&self.user.client, &asked).await;
        self.finish_storm(name, &asked, attempts, last)
            .await
            .map(Some)
    }

    async fn finish_storm(
        &mut self,
        name: &str,
        asked: &Asked,
        attempts: Vec<Attempt>,
        last: Settled,
    ) -> Result<(), Box<TransactionError>> {
        let answers: Vec<_> = attempts
            .iter()
            .chain([&last.last])
            .map(|attempt| &attempt.answer)
            .collect();
        let given_up = answers
            .iter()
            .filter(|answer| ***answer == Answer::GivenUp)
            .count()
            + last.unknown.len();
        let flaw = judge::copies(&answers, given_up, self.units_return());
        let flaw = flaw.or(judge::new_order(
            &last.last.answer,
            self.quantity_of(asked),
            self.standing(),
        ));
        for attempt in attempts {
            let name = if attempt.answer == Answer::GivenUp {
                "not waited for"
            } else {
                name
            };
            let settled = Settled {
                unknown: Vec::new(),
                took: attempt.took,
                last: attempt,
            };
            self.finish(name, asked.clone(), settled, None).await?;
        }
        self.finish(name, asked.clone(), last, flaw).await?;
        Ok(())
    }

    fn quantity_of(&self, asked: &Asked) -> u32 {
        if let Wish::Order { quantity, .. } = &asked.wish {
            *quantity
        } else {
            0
        }
    }

    /// Places this many different orders of one unit at once.
    pub async fn order_at_once(&mut self, name: &str, orders: u32) -> Step<()> {
        let orders = self.sale.budget.take(u64::from(orders));
        if orders == 0 {
            return Ok(None);
        }
        let asked: Vec<_> = (0..orders).map(|_| self.next_order(1)).collect();
        let settled = join_all(
            asked
                .iter()
                .map(|asked| self.sale.ask(&self.user.client, asked)),
        )
        .await;
        let answers: Vec<_> = settled.iter().map(|settled| &settled.last.answer).collect();
        let mut flaw = judge::all_at_once(&answers, 1, self.standing());
        for (asked, settled) in asked.into_iter().zip(settled) {
            self.finish(name, asked, settled, flaw.take()).await?;
        }
        Ok(Some(()))
    }

    /// Looks at the item.
    pub async fn browse(&mut self, name: &str) -> Step<()> {
        let known = Known {
            state: State::Held,
            may_be_over: false,
            payment: None,
            stranger: false,
        };
        self.about(name, Wish::Browse, self.guest.buyer, None, known)
            .await
            .map(|answer| answer.map(|_| ()))
    }

    /// Looks at an order.
    pub async fn show(&mut self, name: &str, own: &mut Own) -> Step<()> {
        self.step(name, own, Wish::Show(own.placed)).await
    }

    /// Looks at somebody else's order.
    pub async fn pry(&mut self, name: &str, own: &Own) -> Step<()> {
        let known = Known {
            state: own.state,
            may_be_over: false,
            payment: None,
            stranger: true,
        };
        let stranger = (self.guest.buyer + 1) % self.sale.crowd.buyers();
        if stranger == self.guest.buyer {
            return Ok(Some(()));
        }
        self.about(name, Wish::Show(own.placed), stranger, None, known)
            .await
            .map(|answer| answer.map(|_| ()))
    }

    /// Reports a payment of this name, as the provider does.
    pub async fn pay(&mut self, name: &str, own: &mut Own, payment: &str) -> Step<()> {
        let payment = format!("{}-{payment}", own.placed.id);
        let step = self
            .step(
                name,
                own,
                Wish::Pay {
                    order: own.placed,
                    payment: payment.clone(),
                },
            )
            .await;
        if own.payment.is_none() && matches!(own.state, State::Confirmed | State::RefundDue) {
            own.payment = Some(payment);
        }
        step
    }

    /// Gives the units back.
    pub async fn cancel(&mut self, name: &str, own: &mut Own) -> Step<()> {
        self.step(name, own, Wish::Cancel(own.placed)).await
    }

    /// Has the money given back, and the units with it.
    pub async fn refund(&mut self, name: &str, own: &mut Own) -> Step<()> {
        self.step(name, own, Wish::Refund(own.placed)).await
    }

    async fn step(&mut self, name: &str, own: &mut Own, wish: Wish) -> Step<()> {
        let known = Known {
            state: own.state,
            may_be_over: false,
            payment: own.payment.as_deref(),
            stranger: false,
        };
        let Some(answer) = self
            .about(name, wish, self.guest.buyer, Some(own.began), known)
            .await?
        else {
            return Ok(None);
        };
        if let Answer::Stands(state) = answer {
            if own.state.has_units() && !state.has_units() {
                self.held = self.held.saturating_sub(own.placed.quantity);
            }
            own.state = state;
        }
        Ok(Some(()))
    }

    /// `began`: when the order was asked for, before which its hold has not begun.
    fn may_be_over(&self, began: Instant) -> bool {
        began.elapsed() + CLOCKS_DIFFER > self.hold()
    }

    async fn about(
        &mut self,
        name: &str,
        wish: Wish,
        buyer: usize,
        began: Option<Instant>,
        known: Known<'_>,
    ) -> Step<Answer> {
        if self.sale.budget.take(1) == 0 {
            return Ok(None);
        }
        let asked = Asked {
            buyer,
            item: self.guest.item,
            wish,
        };
        let settled = self.sale.ask(&self.user.client, &asked).await;
        // The hold went on while we waited.
        let known = Known {
            may_be_over: began.is_some_and(|began| self.may_be_over(began)),
            ..known
        };
        let flaw = life::judge(&asked.wish, known, &settled.last.answer);
        self.finish(name, asked, settled, flaw)
            .await
            .map(|asking| Some(asking.answer))
    }

    async fn place(&mut self, name: &str, quantity: u32) -> Result<Asking, Box<TransactionError>> {
        let asked = self.next_order(quantity);
        let settled = self.sale.ask(&self.user.client, &asked).await;
        let flaw = judge::new_order(&settled.last.answer, quantity, self.standing());
        self.finish(name, asked, settled, flaw).await
    }

    async fn twins(
        &mut self,
        name: &str,
        again: &str,
        quantity: u32,
    ) -> Result<(), Box<TransactionError>> {
        let asked = self.next_order(quantity);
        let client = &self.user.client;
        let (one, other) =
            futures::join!(self.sale.ask(client, &asked), self.sale.ask(client, &asked));
        let flaw = judge::new_order(&one.last.answer, quantity, self.standing());
        let unknown = one.unknown.len() + other.unknown.len();
        let flaw_of_twin = judge::copies(
            &[&one.last.answer, &other.last.answer],
            unknown,
            self.units_return(),
        );
        self.finish(name, asked.clone(), one, flaw).await?;
        self.finish(again, asked, other, flaw_of_twin).await?;
        Ok(())
    }

    fn next_order(&mut self, quantity: u32) -> Asked {
        let key = format!("visit-{}-{}", self.guest.visit, self.orders);
        self.orders += 1;
        let key = HeaderValue::try_from(key).unwrap_or_else(|_| HeaderValue::from_static("visit"));
        Asked {
            buyer: self.guest.buyer,
            item: self.guest.item,
            wish: Wish::Order { key, quantity },
        }
    }

    fn standing(&self) -> Standing {
        Standing {
            held: self.held,
            limit: self.sale.limit,
            may_return: self.guest.may_return,
        }
    }

    async fn finish(
        &mut self,
        name: &str,
        asked: Asked,
        settled: Settled,
        flaw: Option<Flaw>,
    ) -> Result<Asking, Box<TransactionError>> {
        let began = Instant::now()
            .checked_sub(settled.took)
            .unwrap_or_else(Instant::now);
        if self.enter(&asked, &settled, flaw) {
            self.held += self.quantity_of(&asked);
        }
        let method = asked.wish.method();
        for attempt in &settled.unknown {
            self.tell_goose(method.as_str(), name, attempt, None)
                .await?;
        }
        self.tell_goose(method.as_str(), name, &settled.last, flaw)
            .await?;
        Ok(Asking {
            asked,
            began,
            answer: settled.last.answer,
        })
    }

    /// Enters the request in our books, and says whether it placed an order.
    fn enter(&self, asked: &Asked, settled: &Settled, flaw: Option<Flaw>) -> bool {
        if matches!(settled.last.answer, Answer::Unknown(_)) && !settled.unknown.is_empty() {
            // The service is gone: everybody else would wait for it as long.
            self.sale.budget.close();
        }
        // An outcome that could not be told at once is an error, even if the same key told it later.
        let unknown = settled
            .unknown
            .first()
            .map(|attempt| attempt.answer.error());
        self.sale.tally().enter(&Answered {
            buyer: asked.buyer,
            item: asked.item,
            wish: &asked.wish,
            answer: &settled.last.answer,
            flaw: flaw.or(unknown.flatten()),
            took: settled.took,
            at: self.sale.elapsed(),
        })
    }

    /// Expected refusals are no failures, which goose's own way of making requests would first count them as.
    async fn tell_goose(
        &mut self,
        method: &str,
        name: &str,
        attempt: &Attempt,
        flaw: Option<Flaw>,
    ) -> Result<(), Box<TransactionError>> {
        let error = flaw.or(attempt.answer.error());
        self.user
            .record_custom_request_duration(
                method,
                name,
                attempt.took,
                error.is_none(),
                attempt.status,
                error,
            )
            .await
    }
}

//! Payments of orders that have a price: with the right total and with another one, for one order
//! and for two, repeated and late, beside an admin who notes what is due as returned.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::Result;
use client::{Error, IdempotencyKey, NewOrder, OrderState, Payment, ProblemCode};
use futures::TryStreamExt;
use rand::{RngExt, rngs::StdRng};
use tokio::{task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::stripe::Stripe;
use crate::{
    api::Api,
    history::{Answer, Note, PaymentHistory, Report},
    plan::Round,
};

/// The price of a unit.
pub const PRICE: u64 = 1999;
/// Payments that are reported at a time.
const PAYERS: usize = 3;
const PAUSE_OF_PAYER_MS: std::ops::Range<u64> = 20..80;
const PAUSE_OF_ADMIN_MS: std::ops::Range<u64> = 10..120;
const PAUSE_OF_REPORT_MS: std::ops::Range<u64> = 0..300;
/// How long a payer waits for the admin, in polls.
const POLLS_MAX: usize = 40;
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Payers, and an admin.
pub(super) struct Payments {
    payers: JoinSet<Vec<PaymentHistory>>,
    admin: JoinSet<()>,
    stop_admin: CancellationToken,
    notes: Notes,
}

/// What the admin has noted so far.
type Notes = Arc<Mutex<Vec<Note>>>;

#[derive(Clone)]
struct Payer {
    api: Api,
    stripe: Stripe,
    item: String,
    notes: Notes,
}

impl Payments {
    pub(super) fn start(
        api: &Api,
        item: &str,
        stop: &CancellationToken,
        round: &Round,
    ) -> Result<Self> {
        let notes = Notes::default();
        let payer = Payer {
            api: api.clone(),
            stripe: Stripe::new(api, round.health.answered_within)?,
            item: item.to_owned(),
            notes: Arc::clone(&notes),
        };
        let (mut payers, mut admin) = (JoinSet::new(), JoinSet::new());
        for number in 0..PAYERS {
            let rng = round.rng(&format!("payer {number}"));
            payers.spawn(payer.clone().work(number, stop.clone(), rng));
        }
        let stop_admin = CancellationToken::new();
        admin.spawn(payer.note_rows(round.rng("refunds"), stop_admin.clone()));
        Ok(Self {
            payers,
            admin,
            stop_admin,
            notes,
        })
    }

    /// The history of every payment, once the payers have ended. The admin ends after them.
    pub(super) async fn stop(self) -> Vec<PaymentHistory> {
        let mut histories: Vec<_> = self.payers.join_all().await.into_iter().flatten().collect();
        self.stop_admin.cancel();
        self.admin.join_all().await;
        let notes = self.notes.lock().map(|notes| notes.clone());
        for note in notes.unwrap_or_default() {
            let of = histories.iter_mut();
            if let Some(history) = of.into_iter().find(|of| of.payment == note.payment) {
                history.notes.push(note);
            }
        }
        histories
    }
}

impl Payer {
    /// Makes payments one after the other.
    async fn work(
        self,
        number: usize,
        stop: CancellationToken,
        mut rng: StdRng,
    ) -> Vec<PaymentHistory> {
        let mut histories = Vec::new();
        while !stop.is_cancelled() {
            let name = format!("{}-{number}-{}", self.item, histories.len());
            histories.push(self.pay(name, &mut rng).await);
            sleep(Duration::from_millis(rng.random_range(PAUSE_OF_PAYER_MS))).await;
        }
        histories
    }

    /// A payment: reported with another total, then for its order and perhaps for another one, and
    /// once more after the admin has noted it.
    async fn pay(&self, name: String, rng: &mut StdRng) -> PaymentHistory {
        let mut history = PaymentHistory::new(name);
        let Some(order) = self.place(&history, "first", rng).await else {
            return history;
        };
        let other = self.place(&history, "second", rng).await;
        let orders = [order, other.unwrap_or(order)];
        if rng.random_bool(0.1) {
            self.report_return(&history.payment, orders, rng).await;
        }
        for _ in 0..rng.random_range(1..=2) {
            self.report(&mut history, order, PRICE - 1).await;
        }
        if rng.random_bool(0.2) {
            // The hold is over by then.
            sleep(Duration::from_millis(rng.random_range(2000..2600))).await;
        }
        let [first, second] = orders;
        let delays = [0, 1].map(|_| Duration::from_millis(rng.random_range(PAUSE_OF_REPORT_MS)));
        let is_for_two = rng.random_bool(0.4);
        let (mut one, mut two) = (history.clone(), history.clone());
        (one.reports, two.reports) = (Vec::new(), Vec::new());
        let returns = rng.random_bool(0.2);
        if rng.random_bool(0.8) {
            let late = async {
                sleep(delays[0]).await;
                self.report(&mut one, first, PRICE).await;
            };
            let repeat = async {
                sleep(delays[1]).await;
                let order = if is_for_two { second } else { first };
                self.report(&mut two, order, PRICE).await;
            };
            let back = async {
                if returns {
                    self.report_return(&history.payment, orders, rng).await;
                }
            };
            tokio::join!(late, repeat, back);
        }
        for part in [one, two] {
            history.reports.extend(part.reports);
            history.contradictions.extend(part.contradictions);
        }
        self.refund(&history, rng).await;
        if self.wait_for_note(&history.payment).await {
            self.report_once_more(&mut history, order, rng).await;
        }
        history
    }

    /// The provider returns the money, and may name an order. From then on none of the payment's
    /// orders may be confirmed.
    async fn report_return(&self, payment: &str, orders: [Uuid; 2], rng: &mut StdRng) {
        let named = [None, Some(orders[0]), Some(orders[1])][rng.random_range(0..3)];
        let is_noted = self.stripe.report_return(payment, named).await;
        for order in orders {
            self.note(Note {
                row: None,
                payment: payment.to_owned(),
                order,
                is_noted: is_noted.then_some(true),
            });
        }
    }

    /// An admin refunds what the payment has paid, once in four times.
    async fn refund(&self, history: &PaymentHistory, rng: &mut StdRng) {
        let mut reports = history.reports.iter();
        let paid = reports.find(|report| matches!(report.answer, Answer::Paid(_)));
        let Some(report) = paid.filter(|_| rng.random_bool(0.25)) else {
            return;
        };
        let refunded = self.api.admin.refund(report.order).await;
        let is_noted = match &refunded {
            Ok(order) => Some(order.state == OrderState::Refunded),
            Err(Error::Refused(_)) => Some(false),
            Err(_) => None,
        };
        self.note(Note {
            row: Some(report.order.to_string()),
            payment: history.payment.clone(),
            order: report.order,
            is_noted,
        });
    }

    /// Money that was returned confirms nothing: neither its own order nor a new one.
    async fn report_once_more(&self, history: &mut PaymentHistory, order: Uuid, rng: &mut StdRng) {
        let fresh = self.place(history, "third", rng).await;
        for order in [Some(order), fresh].into_iter().flatten() {
            self.report(history, order, PRICE).await;
        }
        let last = history
            .reports
            .last()
            .filter(|last| Some(last.order) == fresh);
        if let Some(Report {
            order,
            answer: Answer::Paid(state),
        }) = last
        {
            let contradiction = format!("order {order} is {state} after the money was returned");
            history.contradictions.push(contradiction);
        }
    }

    /// An order of one unit. `None`: it was not acknowledged.
    async fn place(&self, history: &PaymentHistory, key: &str, rng: &mut StdRng) -> Option<Uuid> {
        let buyer = self
            .api
            .buyer(&format!("payer-{}", rng.random_range(0..50)));
        let key = IdempotencyKey::new(format!("{}-{key}", history.payment)).ok()?;
        let order = NewOrder::new(&self.item, 1).with_key(key);
        buyer.place(&order).await.ok().map(|placed| placed.order.id)
    }

    async fn report(&self, history: &mut PaymentHistory, order: Uuid, amount: u64) {
        let payment = Payment::new(&history.payment, order);
        let payment = payment.amount(amount).currency("EUR");
        let answer = match self.api.provider.report(&payment).await {
            Ok(order) => Answer::Paid(order.state),
            Err(Error::Refused(problem)) => {
                let is_expected = [
                    ProblemCode::AmountMismatch,
                    ProblemCode::AlreadyPaid,
                    ProblemCode::OrderNotPayable,
                    ProblemCode::PaymentAlreadyUsed,
                    ProblemCode::PaymentReturned,
                ];
                let code = problem.code.to_string();
                if !is_expected.contains(&problem.code) {
                    let contradiction = format!("paying order {order}: {code}");
                    history.contradictions.push(contradiction);
                }
                Answer::Refused(code)
            }
            Err(_) => Answer::Unknown,
        };
        history.reports.push(Report { order, answer });
    }

    /// Whether the admin has noted the payment as returned, after some time.
    async fn wait_for_note(&self, payment: &str) -> bool {
        for _ in 0..POLLS_MAX {
            let is_noted = self.notes.lock().is_ok_and(|notes| {
                let mut notes = notes.iter();
                notes.any(|note| note.payment == payment && note.is_noted == Some(true))
            });
            if is_noted {
                return true;
            }
            sleep(POLL_INTERVAL).await;
        }
        false
    }

    fn note(&self, note: Note) {
        if let Ok(mut notes) = self.notes.lock() {
            notes.push(note);
        }
    }

    /// Reads the list of money that is due, and notes some of its rows as returned a moment later.
    async fn note_rows(self, mut rng: StdRng, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let rows = self.api.admin.all_refunds_due();
            let rows: Result<Vec<_>, Error> = rows.try_collect().await;
            let mut rows = rows.unwrap_or_default();
            rows.retain(|row| row.item == self.item && rng.random_bool(0.5));
            for row in rows {
                let Some(payment) = row.payment.filter(|_| !stop.is_cancelled()) else {
                    continue;
                };
                let pause = rng.random_range(PAUSE_OF_ADMIN_MS);
                sleep(Duration::from_millis(pause)).await;
                let is_noted = match self.api.admin.refund_done(&row.id).await {
                    Ok(_) => Some(true),
                    Err(Error::Refused(_)) => Some(false),
                    Err(_) => None,
                };
                self.note(Note {
                    row: Some(row.id),
                    payment,
                    order: row.order,
                    is_noted,
                });
            }
            sleep(Duration::from_millis(rng.random_range(PAUSE_OF_ADMIN_MS))).await;
        }
    }
}

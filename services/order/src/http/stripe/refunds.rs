//! Stripe's events about refunds.
//!
//! `charge.refunded` tells that money has left, with how much of the charge. The events of a refund
//! tell what becomes of it, which may take days: it can fail after it has succeeded. Stripe copies
//! the metadata of a PaymentIntent to its charges and not to its refunds, so these are matched by
//! the payment alone.
//!
//! A repeat of an event has the bytes of the first one, and so its time (`created`). That time, and
//! not the order of arrival, tells a new return from an old one.

use domain::PaymentId;
use jiff::Timestamp;
use ledger::{NotedRefund, RefundReport, RefundState};
use serde_json::Value;

use super::{App, Problem, StripeEvent, StripeResult, payment_id, target, unusable};
use crate::engine::{MoneyReturned, Payable};

/// What the metadata names, or why they cannot be used. They count only for a payment of which nothing
/// is known, so this is no reason to ignore the event.
type Named = Result<Option<Payable>, &'static str>;

/// What an event about a refund asks for.
#[derive(Debug, PartialEq)]
pub(super) enum Refund {
    /// All money of the payment was returned.
    Returned {
        payment: PaymentId,
        named: Named,
        at: Option<Timestamp>,
    },
    /// A refund has this state.
    Reported(Box<RefundReport>),
    /// Nothing, and why.
    Ignored(&'static str),
}

/// The type of the event that money of a charge was returned.
const RETURNED: &str = "charge.refunded";

/// Whether an event of this type is about a refund.
pub(super) fn are_of(kind: &str) -> bool {
    kind == RETURNED || kind == "charge.refund.updated" || kind.starts_with("refund.")
}

/// What the event asks for.
pub(super) fn step(event: &StripeEvent) -> Result<Refund, &'static str> {
    let object = &event.data.object;
    let at = event.created.and_then(seconds);
    if event.kind != RETURNED {
        return Ok(reported(object, at));
    }
    if object["refunded"] != true {
        return Ok(Refund::Ignored("only a part was refunded"));
    }
    Ok(Refund::Returned {
        payment: payment_id(object)?,
        named: target(&object["metadata"]),
        at,
    })
}

/// The report of a refund. One that lacks what names it changes nothing, and neither would a repeat.
fn reported(object: &Value, at: Option<Timestamp>) -> Refund {
    let payment = ["payment_intent", "charge"].map(|name| id_of(&object[name]));
    let payment = payment.into_iter().flatten().next();
    let payment = payment.and_then(|id| PaymentId::new(id).ok());
    let (Some(payment), Some(id)) = (payment, object["id"].as_str()) else {
        return Refund::Ignored("the refund has no id, or names no payment");
    };
    let state = object["status"].as_str().and_then(RefundState::parse);
    let (Some(state), Some(amount)) = (state, object["amount"].as_u64()) else {
        return Refund::Ignored("the refund has no amount, or no state that is known");
    };
    let currency = object["currency"].as_str().map(str::to_ascii_uppercase);
    // The metadata of a refund is the shop's: it counts if it names something, and need not.
    let named = target(&object["metadata"]).ok().flatten();
    Refund::Reported(Box::new(RefundReport {
        id: id.into(),
        payment,
        payer: named.map(|named| named.as_uuid()),
        state,
        amount,
        currency,
        created_at: object["created"].as_i64().and_then(seconds),
        at,
    }))
}

/// The id of an object, which may be there as a whole.
fn id_of(object: &Value) -> Option<&str> {
    object.as_str().or(object["id"].as_str())
}

fn seconds(seconds: i64) -> Option<Timestamp> {
    Timestamp::from_second(seconds).ok()
}

/// Applies it.
pub(super) async fn apply(app: &App, refund: Refund) -> Result<StripeResult, Problem> {
    match refund {
        Refund::Returned { payment, named, at } => returned(app, &payment, named, at).await,
        Refund::Reported(report) => note(app, &report).await,
        Refund::Ignored(reason) => Ok(StripeResult::ignored(reason)),
    }
}

async fn returned(
    app: &App,
    payment: &PaymentId,
    named: Named,
    at: Option<Timestamp>,
) -> Result<StripeResult, Problem> {
    let payer = named.ok().flatten();
    let returned = app.engine.money_returned(payment, payer, at);
    Ok(match returned.await? {
        MoneyReturned::Order(order) => StripeResult::of(&order),
        MoneyReturned::Cart(cart) => StripeResult::of(&cart),
        MoneyReturned::Unmatched(of) => StripeResult::about(of, "payment_refunded"),
        MoneyReturned::Unknown => match named {
            Ok(Some(Payable::Order(_))) => return Err(Problem::order_not_found()),
            Ok(Some(Payable::Cart(_))) => return Err(Problem::cart_not_found()),
            Ok(None) => StripeResult::ignored(UNKNOWN),
            Err(reason) => unusable(RETURNED, reason),
        },
    })
}

/// Of another shop that sells by the same account, for example.
const UNKNOWN: &str = "no order and no cart has this payment, and the metadata names none";

async fn note(app: &App, report: &RefundReport) -> Result<StripeResult, Problem> {
    let NotedRefund::Of { payer, is_due } = app.engine.refund_reported(report).await? else {
        return Ok(StripeResult::ignored(UNKNOWN));
    };
    let result = if is_due { "refund_failed" } else { "noted" };
    Ok(StripeResult::about(Payable::from(&payer), result))
}

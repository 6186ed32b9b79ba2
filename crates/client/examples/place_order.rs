//! Places an order at a running Stockade, pays for it, and proves that every unit is accounted for.
//!
//! Start the service in one terminal, and run this in another:
//!
//! ```sh
//! make up
//! cargo run -p client --example place_order
//! cargo run -p client --example place_order -- http://127.0.0.1:8080 .stockade   # the defaults
//! ```
//!
//! `make up` leaves its secrets in `.stockade/run.toml`. A shop reads them from its own
//! configuration: `STOCKADE_JWT_SECRET`, `STOCKADE_ADMIN_TOKEN` and `STOCKADE_PAYMENT_SECRET`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{env, fs, time::Duration};

use anyhow::{Context, Result, bail};
use client::{
    Admin, Buyer, Client, Error, NewItem, NewOrder, Order, OrderState, Payment, PaymentKey, Placed,
    Token,
};

const ITEM: &str = "place-order-example";
const AN_HOUR: Duration = Duration::from_secs(3600);

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let url = arguments.next().unwrap_or("http://127.0.0.1:8080".into());
    let dir = arguments.next().unwrap_or(".stockade".into());

    // One client for the whole process: it keeps connections open, and its clones share them. The
    // three kinds of callers differ in what they present.
    let client = Client::new(url)?;
    let admin = client.admin(Token::bearer(secret(&dir, "admin_token")?)?);
    let provider = client.payment_provider(PaymentKey::new(secret(&dir, "payment_secret")?));
    // Your shop issues this token when the buyer logs in, and the buyer's browser presents it.
    let token = Token::mint_buyer(secret(&dir, "jwt_secret")?, "ann", AN_HOUR);
    let buyer = client.buyer(token);

    // Creating an item is idempotent: a second run of this example continues with the same item.
    let item = NewItem::new(ITEM, 100);
    let item = admin.create_item(&item).await?;
    println!(
        "{}: {} of {} units available",
        item.id, item.available, item.stock
    );

    // Rule 1: the order contains its key, so create it once. A shop stores `order.key()` with the
    // cart before it sends the first request.
    let order = NewOrder::new(ITEM, 1);
    let placed = place(&buyer, &order).await?;
    println!("order {} is {}", placed.order.id, placed.order.state);

    // The same value again is the same order. No unit is reserved twice.
    let replay = buyer.place(&order).await?;
    assert!(replay.replayed && replay.order.id == placed.order.id);

    // The payment provider reports the payment, signed. `Payment::new` puts the order into the
    // signed body, so a copied report cannot pay for another order.
    let payment = Payment::new(format!("pay-{}", placed.order.id), placed.order.id);
    match provider.report(&payment).await?.state {
        OrderState::Confirmed => println!("paid"),
        // The hold had expired, and the units were sold to others: return the money.
        OrderState::RefundDue => println!("paid too late; the money must be returned"),
        other => bail!("a paid order is {other}"),
    }

    verify(&buyer, &admin, &placed.order).await
}

/// Places `order`, and distinguishes the three possible outcomes.
async fn place(buyer: &Buyer, order: &NewOrder) -> Result<Placed> {
    match buyer.place(order).await {
        Ok(placed) => Ok(placed),
        // The service decided, and nothing was reserved. `code` is stable; `detail` is for people.
        Err(Error::Refused(problem)) => bail!("no order: {} ({})", problem.detail, problem.code),
        // Rule 2: this is no refusal. The client has repeated the request for 30 seconds. A shop
        // keeps the key and repeats the request from a background job.
        Err(error) if error.is_outcome_unknown() => {
            Err(error).with_context(|| format!("repeat later with the key {}", order.key()))
        }
        Err(error) => Err(error.into()),
    }
}

/// Rule 3: reads from the ledger what the responses claimed.
async fn verify(buyer: &Buyer, admin: &Admin, order: &Order) -> Result<()> {
    let recorded = buyer.order(order.id).await?;
    println!("the ledger has the order as {}", recorded.state);
    let audit = admin.audit(ITEM).await?;
    println!(
        "audit: {} units = {} available + {} held + {} confirmed + {} on their way; drift {}",
        audit.stock,
        audit.available,
        audit.held,
        audit.confirmed,
        audit.in_flight + audit.returning + audit.in_transit,
        audit.drift
    );
    anyhow::ensure!(audit.ok, "the audit found a difference: {audit:?}");
    Ok(())
}

/// A secret that `make up` generated.
fn secret(dir: &str, name: &str) -> Result<String> {
    let path = format!("{dir}/run.toml");
    let text = fs::read_to_string(&path)
        .with_context(|| format!("cannot read {path}: is `make up` running?"))?;
    let settings: toml::Table = toml::from_str(&text)?;
    let secret = settings.get(name).and_then(toml::Value::as_str);
    secret
        .map(str::to_owned)
        .with_context(|| format!("{path} has no {name}"))
}

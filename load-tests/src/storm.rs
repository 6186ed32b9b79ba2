//! A storm of returns to an item that sold out to a crowd, beside a rush of honest buyers of
//! another one.
//!
//! A unit that comes back changes what is known about the buyers of a sold-out item. A service that
//! read all of them anew would be busy with nothing else, so the crowd is a real one: every buyer
//! holds a unit, in Redis and in the ledger. Shop-side batches place their orders.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use client::{
    BuyerOrder, Client, Error, IdempotencyKey, NewItem, NewOrder, ProblemCode, RetryPolicy, Token,
};
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use reporting::{number::percent, table::ruled};
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval},
};
use uuid::Uuid;

use crate::{
    admin::Admin,
    hostile::{ALONE, ComparisonOptions, Pair, WARM_UP, kept, median, rush},
    target::Target,
};

/// Orders of one request, and requests under way.
const BATCH: u32 = 512;
const BATCHES_AT_ONCE: usize = 4;
/// Units that come back at first. The storm keeps them in motion.
const UNITS: u32 = 4;
/// Longer than any run: the end of a million holds would be a storm of its own.
const HOLD_SECONDS: u32 = 86_400;
/// Time between two requests of a client of the storm.
const PACE: Duration = Duration::from_millis(100);
/// Returns of one rush, at least. With fewer there was no storm.
const RETURNS_MIN: u64 = 20;
const TOKEN_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// Limit for the crowd's orders to be recorded, and for the last units to arrive.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(300);
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(60);
/// The name of a rush beside the storm.
const BESIDE: &str = "beside returns";

/// The options of the storm. Its clients are the hostile ones.
#[derive(Debug, Clone, Args)]
pub struct StormOptions {
    #[command(flatten)]
    comparison: ComparisonOptions,
    /// Number of distinct buyers that the sold-out item knows.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(100..=5_000_000))]
    crowd: u32,
    /// Number of stock counters of the item.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    segments: u16,
}

/// What the clients of a storm did.
#[derive(Debug, Default)]
struct Counts {
    /// Units that were bought and came back.
    returned: AtomicU64,
    /// Orders that were refused as sold out.
    refused: AtomicU64,
    /// Other answers.
    other: AtomicU64,
}

/// The sold-out item, and those who keep its last units in motion.
#[derive(Clone)]
struct Storm {
    client: Client,
    jwt_secret: Arc<str>,
    item: Arc<str>,
    counts: Arc<Counts>,
    is_over: Arc<AtomicBool>,
}

/// Compares, and prints a table. Returns whether every verdict is good and the buyers kept enough.
pub async fn compare(options: &StormOptions) -> Result<bool> {
    let comparison = &options.comparison;
    let target = Target::find(comparison.host(), comparison.dir(), false)?;
    let admin = Admin::new(&target, false)?;
    let storm = Storm::prepare(&target, &admin, options).await?;
    // The program warms up first, as without a storm.
    rush(comparison, WARM_UP, None).await?;
    let mut pairs = Vec::new();
    let mut least = u64::MAX;
    for _ in 0..comparison.rounds() {
        let alone = rush(comparison, ALONE, None).await?;
        let before = storm.counts.returned.load(Ordering::Relaxed);
        let clients = storm.begin(comparison.hostile());
        let beside = rush(comparison, BESIDE, None).await?;
        storm.end(clients).await;
        least = least.min(storm.counts.returned.load(Ordering::Relaxed) - before);
        pairs.push(Pair { alone, beside });
    }
    print(options, &pairs);
    let is_good = |pair: &Pair| pair.alone.is_good && pair.beside.is_good;
    let is_good = pairs.iter().all(is_good);
    let findings = storm.findings(&admin, least).await?;
    for finding in &findings {
        eprintln!("storm: {finding}");
    }
    Ok(is_good && findings.is_empty() && kept(&pairs) >= comparison.keep())
}

impl Storm {
    /// Sells an item out to the crowd, and gives the first units back.
    async fn prepare(target: &Target, admin: &Admin, options: &StormOptions) -> Result<Self> {
        let item = format!("storm-{}", Timestamp::now().as_millisecond());
        let crowd = options.crowd;
        admin
            .create(&NewItem {
                segments: Some(options.segments),
                limit_per_buyer: Some(1),
                hold_seconds: Some(HOLD_SECONDS),
                ..NewItem::new(&item, crowd.into())
            })
            .await?;
        let client = Client::builder([&target.host])
            .attempt_timeout(ATTEMPT_TIMEOUT)
            .retry(RetryPolicy::default())
            .build()?;
        let shop = client.admin(Token::bearer(&target.admin_token)?);
        eprintln!("storm: {crowd} buyers buy {item}");
        let batches = (0..crowd.div_ceil(BATCH)).map(|batch| {
            let (shop, item) = (shop.clone(), item.clone());
            async move { place(&shop, &item, batch * BATCH..crowd.min((batch + 1) * BATCH)).await }
        });
        let first: Vec<Vec<Uuid>> = stream::iter(batches)
            .buffered(BATCHES_AT_ONCE)
            .try_collect()
            .await?;
        let audit = admin.audit(&item, SETTLE_TIMEOUT).await?;
        ensure!(
            audit.ok && audit.held == u64::from(crowd),
            "{item}: expected {crowd} held units, found {}",
            audit.held
        );
        let storm = Self {
            client: client.with_retry(RetryPolicy::never()),
            jwt_secret: target.jwt_secret.as_str().into(),
            item: item.into(),
            counts: Arc::default(),
            is_over: Arc::default(),
        };
        for (number, order) in (0..UNITS).zip(first.into_iter().flatten()) {
            let buyer = client.buyer(storm.token(&buyer(number)));
            let cancelled = buyer.cancel(order).await;
            cancelled.with_context(|| format!("cancelling order {order}"))?;
        }
        Ok(storm)
    }

    /// Starts the clients.
    fn begin(&self, clients: u32) -> JoinSet<()> {
        self.is_over.store(false, Ordering::Relaxed);
        (0..clients)
            .map(|number| self.clone().order_and_cancel(number))
            .collect()
    }

    /// Ends the clients. Each gives back first what it has, or the next rush would have fewer units
    /// in motion.
    async fn end(&self, clients: JoinSet<()>) {
        self.is_over.store(true, Ordering::Relaxed);
        clients.join_all().await;
    }

    /// Orders a unit and cancels it at once, each time as another buyer.
    async fn order_and_cancel(self, number: u32) {
        let mut pace = interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while !self.is_over.load(Ordering::Relaxed) {
            pace.tick().await;
            let name = format!("s{number}-{}", Uuid::new_v4().simple());
            let buyer = self.client.buyer(self.token(&name));
            let count = match buyer.place(&NewOrder::new(&*self.item, 1)).await {
                // A unit that stayed with a client would be missing in the storm.
                Ok(placed) if cancel(&buyer, placed.order.id).await => &self.counts.returned,
                Err(error) if error.is(ProblemCode::SoldOut) => &self.counts.refused,
                _ => &self.counts.other,
            };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn token(&self, buyer: &str) -> Token {
        Token::mint_buyer(&*self.jwt_secret, buyer, TOKEN_LIFETIME)
    }

    /// What is wrong with the item after the storm, or with the storm itself.
    async fn findings(&self, admin: &Admin, least: u64) -> Result<Vec<String>> {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let (returned, refused, other) = (
            count(&self.counts.returned),
            count(&self.counts.refused),
            count(&self.counts.other),
        );
        eprintln!(
            "storm: {returned} units returned, {refused} orders refused, {other} other answers"
        );
        let mut findings = too_little(least, refused);
        let audit = admin.audit(&self.item, SETTLE_TIMEOUT).await?;
        if !audit.ok || audit.drift > 0 || audit.oversold > 0 {
            findings.push(format!(
                "{}: drift {}, oversold {}",
                self.item, audit.drift, audit.oversold
            ));
        }
        Ok(findings)
    }
}

/// What the storm lacked to be one.
fn too_little(least_returned: u64, refused: u64) -> Vec<String> {
    let mut findings = Vec::new();
    if least_returned < RETURNS_MIN {
        findings.push(format!(
            "too little seen: {least_returned} returns beside a rush, expected at least {RETURNS_MIN}"
        ));
    }
    if refused == 0 {
        findings.push("too little seen: the item was never sold out".to_owned());
    }
    findings
}

/// Cancels the order, and repeats that until it is known to have happened, or until a service that
/// still lives would have answered.
async fn cancel(buyer: &client::Buyer, order: Uuid) -> bool {
    let began = Instant::now();
    while began.elapsed() < SETTLE_TIMEOUT {
        match buyer.cancel(order).await {
            Ok(_) => return true,
            Err(Error::Refused(problem)) if problem.status < 500 => return false,
            Err(_) => tokio::time::sleep(PACE).await,
        }
    }
    false
}

/// The name of a buyer of the crowd.
fn buyer(number: u32) -> String {
    format!("m{number}")
}

/// Places an order for one unit for each of these buyers, and returns the first orders.
async fn place(
    shop: &client::Admin,
    item: &str,
    buyers: std::ops::Range<u32>,
) -> Result<Vec<Uuid>> {
    let orders: Vec<_> = buyers
        .clone()
        .map(|number| BuyerOrder {
            buyer: buyer(number),
            quantity: 1,
            key: IdempotencyKey::from(u64::from(number)),
            amount: None,
        })
        .collect();
    let mut placed = Vec::new();
    // A line whose outcome is unknown is the same order when it is repeated.
    for _ in 0..10 {
        let results = shop.place_batch(item, &orders).await?;
        let results: Result<Vec<_>, Error> = results.into_iter().collect();
        match results {
            Ok(all) => {
                placed = all.iter().map(|placed| placed.order.id).collect();
                break;
            }
            Err(error) if error.is_outcome_unknown() => {}
            Err(error) => return Err(anyhow!("the crowd's order was refused: {error}")),
        }
    }
    ensure!(
        placed.len() == orders.len(),
        "buyers {buyers:?} of the crowd have no order after ten attempts"
    );
    placed.truncate(UNITS as usize);
    Ok(placed)
}

#[expect(clippy::print_stdout, reason = "the table goes to standard output")]
fn print(options: &StormOptions, pairs: &[Pair]) {
    let mut table = ruled(["", "answers/s", "p99 ms", "good verdicts"]);
    let storm = format!("beside returns to an item of {} buyers", options.crowd);
    let alone = pairs.iter().map(|pair| &pair.alone).collect::<Vec<_>>();
    let beside = pairs.iter().map(|pair| &pair.beside).collect::<Vec<_>>();
    for (name, rushes) in [(ALONE.to_owned(), alone), (storm, beside)] {
        let good = rushes.iter().filter(|rush| rush.is_good).count();
        table.add_row([
            name,
            format!("{:.0}", median(&rushes, |rush| rush.answers_per_second)),
            format!("{:.1}", median(&rushes, |rush| rush.latency_ms_p99)),
            format!("{good} of {}", rushes.len()),
        ]);
    }
    println!("{table}");
    println!(
        "buyers kept {} of their rate; at least {} is demanded",
        percent(kept(pairs)),
        percent(options.comparison.keep())
    );
}

#[cfg(test)]
mod tests {
    use super::too_little;

    #[test]
    fn a_storm_without_returns_or_refusals_is_none() {
        assert!(too_little(20, 1).is_empty());
        assert_eq!(too_little(19, 1).len(), 1);
        assert_eq!(too_little(0, 0).len(), 2);
    }
}

//! A run: creates the items, runs the sessions, settles the items, and judges the result.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use reporting::files;
use tokio::time::sleep;

use crate::{
    admin::Admin,
    attack,
    buyers::Buyers,
    cart::ledger::{CartsReport, LedgerCarts, Promised},
    closing,
    crowd::Crowd,
    hostile::HostileClients,
    items::Items,
    mix::Mix,
    options::Options,
    progress,
    sale::Sale,
    target::Target,
    verdict::{Expectations, Verdict},
};

/// Runs the mix, and prints the verdict. Returns whether it is good.
pub async fn run(mix: &Mix, options: &Options) -> Result<bool> {
    let name = mix.name();
    let pays = mix.scenarios().any(|scenario| scenario.pays);
    let target = Target::find(options.host.as_deref(), &options.dir, pays)?;
    let admin = Admin::new(&target, options.outages)?;
    let items = Items::new(mix.policies(), &options.name(name), options)?;
    let crowd = Crowd::new(
        mix.clone(),
        options.seed,
        (options.buyers(), options.skew),
        options.sessions(),
    )?;
    let buyers = Buyers::new(options.buyers(), &target.jwt_secret);
    items.create(&admin, options).await?;
    let sale = Arc::new(Sale::new(&target, items, buyers, options)?);
    announce(mix, &sale, &target, options);
    let hostile = HostileClients::start(&target, &admin, &sale.items, options).await?;
    sell(name, &target, (&sale, crowd), options).await?;
    let hostile = hostile.stop(&admin).await?;
    let closed = closing::close(&sale, &admin).await?;
    let expectations = Expectations {
        requests: options.requests_due(),
        limit: options.limit,
        must_resell: mix.must_resell(),
    };
    if options.outages {
        // A server that takes over may lack the last units that came back, until it is repaired.
        sale.history().forget_claims();
    }
    let mut verdict = Verdict::new(name, &sale.history(), &closed, expectations);
    verdict.add_carts(judge_carts(&sale, &admin).await?);
    verdict.add_hostile(hostile);
    report(&verdict, name, options)
}

/// Compares the acknowledged carts with those of the ledger.
async fn judge_carts(sale: &Sale, admin: &Admin) -> Result<CartsReport> {
    let ledger = LedgerCarts::read(sale, admin).await?;
    let history = sale.history();
    Ok(ledger.judge(&Promised {
        carts: &history.carts,
        items: sale.items.iter().map(|(_, item)| item.id.clone()).collect(),
        limit: sale.limit,
        may_be_unacknowledged: history.carts_refused_after_unknown,
    }))
}

fn announce(mix: &Mix, sale: &Sale, target: &Target, options: &Options) {
    let name = mix.name();
    let much = options.requests_due().map_or_else(
        || format!("{} s", options.seconds.unwrap_or_default()),
        |requests| format!("{requests} requests"),
    );
    for (_, item) in sale.items.iter() {
        eprintln!(
            "{name}: {much} for {} units of {} at {}",
            item.stock, item.id, target.host
        );
    }
    eprintln!("{name}: virtual users are {mix}");
}

async fn sell(
    name: &str,
    target: &Target,
    (sale, crowd): (&Arc<Sale>, Crowd),
    options: &Options,
) -> Result<()> {
    let progress = tokio::spawn(progress::show(Arc::clone(sale)));
    let end = options
        .seconds
        .map(|seconds| tokio::spawn(end_after(Arc::clone(sale), Duration::from_secs(seconds))));
    let result = attack::run(name, &target.host, (sale, crowd), options).await;
    progress.abort();
    if let Some(end) = end {
        end.abort();
    }
    result
}

async fn end_after(sale: Arc<Sale>, time: Duration) {
    while sale.elapsed() < time {
        sleep(Duration::from_millis(20)).await;
    }
    sale.budget.close();
}

#[expect(clippy::print_stdout, reason = "the verdict goes to standard output")]
fn report(verdict: &Verdict, name: &str, options: &Options) -> Result<bool> {
    println!("{verdict}");
    println!("report: {}", options.report(name).display());
    if let Some(path) = &options.json {
        files::write("--json", path, &files::json(verdict)?)?;
    }
    Ok(verdict.good)
}

//! The rush: many buyers, one item, and far fewer units than buyers.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use jiff::Timestamp;

use crate::{
    admin::{Admin, NewItem},
    attack,
    buyers::{ONE_UNIT, OVER_THE_LIMIT, REPEATS, TWO_UNITS},
    cli::Options,
    crowd::Crowd,
    mix::Mix,
    progress,
    sale::Sale,
    target::Target,
    verdict::{Demand, Verdict},
};

const NAME: &str = "rush";

/// Longer than any run, and than anybody looks at its result.
const HOLD_SECONDS: u32 = 24 * 3600;

/// How long what was acknowledged may take to be seen in the ledger.
const AUDIT_PATIENCE: Duration = Duration::from_secs(30);

/// Of a hundred buyers.
pub static MIX: Mix = Mix::new(&[(65, ONE_UNIT), (15, REPEATS), (10, TWO_UNITS), (10, OVER_THE_LIMIT)]);

/// Runs it, prints the verdict, and says whether it is good.
pub async fn run(options: &Options) -> Result<bool> {
    let target = Target::find(options.host.as_deref(), &options.dir)?;
    let admin = Admin::new(&target)?;
    let item = options.item.clone().unwrap_or_else(new_name);
    admin.create(&new_item(&item, options)).await?;
    // A visit makes a request at least, unless it comes when all have been made, which may be everybody's last.
    let visits = options.requests + u64::from(options.users);
    let crowd = Crowd::new(&MIX, options.seed, options.buyers.unwrap_or(visits), visits, &target.jwt_secret)?;
    let sale = Arc::new(Sale::new(&target.host, item, crowd, options)?);
    eprintln!("{NAME}: {} requests for {} units of {} at {}", options.requests, options.stock, sale.item, target.host);
    eprintln!("{NAME}: buyers are {MIX}");
    sell(&target, &sale, options).await?;
    let audit = admin.audit(&sale.item, AUDIT_PATIENCE).await?;
    let verdict = Verdict::new(NAME, &sale.item, &sale.tally(), &audit, Demand { requests: options.requests, limit: options.limit });
    report(&verdict, options)
}

fn new_name() -> String {
    format!("{NAME}-{}", Timestamp::now().strftime("%Y%m%d-%H%M%S-%3f"))
}

fn new_item(id: &str, options: &Options) -> NewItem {
    NewItem {
        id: id.to_owned(),
        stock: options.stock,
        limit_per_buyer: options.limit,
        segments: options.segments,
        hold_seconds: HOLD_SECONDS,
        durability: options.durability,
    }
}

async fn sell(target: &Target, sale: &Arc<Sale>, options: &Options) -> Result<()> {
    let progress = tokio::spawn(progress::show(Arc::clone(sale), options.requests));
    let result = attack::run(NAME, &target.host, sale, options).await;
    progress.abort();
    result
}

#[expect(clippy::print_stdout, reason = "this is what the user asked for")]
fn report(verdict: &Verdict, options: &Options) -> Result<bool> {
    println!("{verdict}");
    println!("report: {}", options.report.display());
    if let Some(path) = &options.json {
        let json = serde_json::to_string_pretty(verdict)? + "\n";
        std::fs::write(path, json).with_context(|| format!("--json: {} cannot be written", path.display()))?;
    }
    Ok(verdict.good)
}

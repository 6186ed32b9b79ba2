//! The crowd set loose: goose runs the buyers, begins with all of them at once, and writes the report.

use std::{fs, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use goose::{
    GooseAttack,
    client::GooseClientBuilder,
    config::GooseConfiguration,
    goose::{GooseUser, Scenario, Transaction, TransactionFunction, TransactionResult},
    is_killswitch_triggered,
};
use tokio::sync::Barrier;

use crate::{cli::Options, sale::Sale, visit::Visit};

/// Longer than the service takes to say that it does not know.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Runs the sale until every request was made.
pub async fn run(name: &str, host: &str, sale: &Arc<Sale>, options: &Options) -> Result<()> {
    let report = options.report(name);
    make_folder(&report)?;
    // Everybody shares one client: its pool keeps a connection for each buyer at once.
    let client = GooseClientBuilder::new()
        .without_cookies()
        .gzip(false)
        .timeout(TIMEOUT);
    GooseAttack::initialize_with_config(configuration(host, &report, options))?
        .set_client_builder_without_cookies(client)?
        .register_scenario(scenario(name, sale, options))
        .execute()
        .await?;
    Ok(())
}

fn make_folder(file: &Path) -> Result<()> {
    let folder = file.parent().unwrap_or_else(|| Path::new(""));
    fs::create_dir_all(folder)
        .with_context(|| format!("--report: {} cannot be made", folder.display()))
}

fn configuration(host: &str, report: &Path, options: &Options) -> GooseConfiguration {
    let mut configuration = GooseConfiguration::default();
    configuration.host = Some(host.to_owned());
    configuration.users = Some(options.users as usize);
    // They wait for each other, so it only matters that it is soon.
    configuration.increase_rate = Some((options.users * 4).to_string());
    configuration.report_file = vec![report.display().to_string()];
    // We print a verdict, and progress on the way to it.
    configuration.no_print_metrics = true;
    configuration.quiet = 2;
    // The reset after all users have started would lose the first requests.
    configuration.no_reset_metrics = true;
    configuration.no_telnet = true;
    configuration
}

fn scenario(name: &str, sale: &Arc<Sale>, options: &Options) -> Scenario {
    let doors = Arc::new(Barrier::new(options.users as usize));
    let (at_the_doors, inside) = (Arc::clone(sale), Arc::clone(sale));
    let wait: TransactionFunction =
        Arc::new(move |_| Box::pin(wait(Arc::clone(&at_the_doors), Arc::clone(&doors))));
    let buy: TransactionFunction = Arc::new(move |user| Box::pin(buy(Arc::clone(&inside), user)));
    Scenario::new(name)
        .register_transaction(
            Transaction::new(wait)
                .set_name("wait for the doors")
                .set_on_start(),
        )
        .register_transaction(Transaction::new(buy).set_name("buy"))
}

/// Goose starts users one by one; a rush begins with everybody there.
async fn wait(sale: Arc<Sale>, doors: Arc<Barrier>) -> TransactionResult {
    tokio::select! {
        _ = doors.wait() => sale.begin(),
        () = interrupted() => sale.budget.close(),
    }
    Ok(())
}

/// Returns after Ctrl-C.
async fn interrupted() {
    while !is_killswitch_triggered() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn buy(sale: Arc<Sale>, user: &mut GooseUser) -> TransactionResult {
    let guest = sale.next_guest();
    let result = (guest.kind.buy)(&mut Visit::new(Arc::clone(&sale), user, guest)).await;
    if sale.budget.is_spent() {
        // Goose has no end by number of requests. A user who has run all its iterations goes, and when all have gone the run is over.
        user.config.iterations = Some(user.get_iterations() + 1);
    }
    result.map(|_| ())
}

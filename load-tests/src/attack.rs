//! Runs the sessions with goose: starts all virtual users together, and writes the report.

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

use crate::{
    crowd::Crowd,
    options::Options,
    sale::Sale,
    session::{End, Session},
};

/// Longer than the service takes to report an unknown outcome.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Runs the sale until every request was sent.
pub async fn run(
    name: &str,
    host: &str,
    (sale, crowd): (&Arc<Sale>, Crowd),
    options: &Options,
) -> Result<()> {
    let report = options.report(name);
    make_folder(&report)?;
    // All virtual users share one pool, which keeps a connection for each of them.
    let client = GooseClientBuilder::new()
        .without_cookies()
        .gzip(false)
        .timeout(REQUEST_TIMEOUT);
    GooseAttack::initialize_with_config(configuration(host, &report, options))?
        .set_client_builder_without_cookies(client)?
        .register_scenario(scenario(name, (sale, crowd), options))
        .execute()
        .await?;
    Ok(())
}

fn make_folder(file: &Path) -> Result<()> {
    let folder = file.parent().unwrap_or_else(|| Path::new(""));
    fs::create_dir_all(folder).with_context(|| {
        format!(
            "--report: the folder {} cannot be created",
            folder.display()
        )
    })
}

fn configuration(host: &str, report: &Path, options: &Options) -> GooseConfiguration {
    let mut configuration = GooseConfiguration::default();
    configuration.host = Some(host.to_owned());
    configuration.users = Some(options.users as usize);
    // Virtual users wait for each other at the barrier, so only the total time matters.
    configuration.increase_rate = Some((options.users * 4).to_string());
    configuration.report_file = vec![report.display().to_string()];
    // This program prints progress and a verdict itself.
    configuration.no_print_metrics = true;
    configuration.quiet = 2;
    // A reset after all users have started would lose the first requests.
    configuration.no_reset_metrics = true;
    configuration.no_telnet = true;
    configuration
}

fn scenario(name: &str, (sale, crowd): (&Arc<Sale>, Crowd), options: &Options) -> Scenario {
    let barrier = Arc::new(Barrier::new(options.users as usize));
    let (waiting, inside) = (Arc::clone(sale), Arc::clone(sale));
    let crowd = Arc::new(crowd);
    let wait: TransactionFunction =
        Arc::new(move |_| Box::pin(wait(Arc::clone(&waiting), Arc::clone(&barrier))));
    let buy: TransactionFunction =
        Arc::new(move |user| Box::pin(buy(Arc::clone(&inside), Arc::clone(&crowd), user)));
    Scenario::new(name)
        .register_transaction(
            Transaction::new(wait)
                .set_name("wait for the start")
                .set_on_start(),
        )
        .register_transaction(Transaction::new(buy).set_name("buy"))
}

/// Goose starts users one by one, but the sale must start with all of them.
async fn wait(sale: Arc<Sale>, barrier: Arc<Barrier>) -> TransactionResult {
    tokio::select! {
        _ = barrier.wait() => sale.begin(),
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

async fn buy(sale: Arc<Sale>, crowd: Arc<Crowd>, user: &mut GooseUser) -> TransactionResult {
    let (virtual_user, behavior) = crowd.next(&sale.items);
    let mut session = Session::new(Arc::clone(&sale), user, virtual_user);
    let result = (behavior.run)(&mut session).await;
    if sale.budget.is_spent() {
        // Goose cannot end a run by the number of requests. A user leaves after its last iteration,
        // and the run ends when all users have left.
        user.config.iterations = Some(user.get_iterations() + 1);
    }
    match result {
        Err(End::Failed(error)) => Err(error),
        Ok(()) | Err(End::Early) => Ok(()),
    }
}

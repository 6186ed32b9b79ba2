//! Runs a plan: batch after batch, and round after round.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use client::{Durability, NewItem};
use futures::{StreamExt, stream};
use rand::RngExt;
use tokio::time::{Instant, sleep};

use crate::{
    api::is_quiet,
    env::{EnvConfig, TestEnv},
    heal,
    history::SaleItem,
    inject::{inject, restart_killed_master},
    judge::{InDoubt, Judge, judge_events, judge_payments},
    monitor::OversellMonitor,
    plan::{Batch, Plan, Round},
    report::{Report, RoundReport},
    returns::ReturnLog,
    verdict::Verdict,
    workload::{PRICE, Workload},
};

/// Time for which the workload continues after the service has recovered.
const WORKLOAD_TAIL: Duration = Duration::from_millis(300);
/// The item that has a price, and its units.
const PRICED: &str = "priced";
const PRICED_STOCK: u64 = 100_000;
/// Acknowledged orders and carts of a round, at least. A third of them give their units back.
const ACKNOWLEDGED_MIN: usize = 40;
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const FAULT_START_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Limit for subscribers to get the events that they have missed. A publisher whose clock was four
/// minutes ahead has leased its webhooks until then.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(300);
const FINAL_AUDIT_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Limits for the printed description of a violation. `summary.json` and the logs have the rest.
const FINDINGS_SHOWN: usize = 20;
const LOG_LINES_SHOWN: usize = 8;
const LINE_CHARACTERS_MAX: usize = 300;

/// Receives a line about the progress of the run.
pub type Progress<'a> = &'a (dyn Fn(&str) + Sync);

/// Runs the plan, with up to `parallel` batches concurrently. Times to heal are comparable only
/// with one at a time.
pub async fn run(
    plan: &Plan,
    config: &EnvConfig,
    parallel: usize,
    progress: Progress<'_>,
) -> Report {
    let mut report = Report::new(plan);
    let batches = stream::iter(&plan.batches).map(|batch| run_batch(batch, plan, config, progress));
    let mut batches = batches.buffer_unordered(parallel);
    while let Some(of_batch) = batches.next().await {
        report.merge(of_batch);
    }
    report.judge_what_was_seen();
    report
}

async fn run_batch(
    batch: &Batch,
    plan: &Plan,
    config: &EnvConfig,
    progress: Progress<'_>,
) -> Report {
    let name = format!("batch-{:02}-{}", batch.number, batch.topology);
    progress(&format!(
        "batch {} of {}: {} faults in `{}`, logs in {}",
        batch.number,
        plan.batches.len(),
        batch.rounds.len(),
        batch.topology,
        config.out.join(&name).display()
    ));
    let mut report = Report::new(plan);
    // The rounds before an error, and the other batches, remain valid.
    if let Err(error) = start_and_run(batch, &name, config, &mut report, progress).await {
        let finding = format!("batch {} was aborted: {error:#}", batch.number);
        progress(&format!("VIOLATION {finding}"));
        report.add_batch_finding(finding);
    }
    report
}

async fn start_and_run(
    batch: &Batch,
    name: &str,
    config: &EnvConfig,
    report: &mut Report,
    progress: Progress<'_>,
) -> Result<()> {
    let config = config.with_brokers(&batch.brokers);
    let mut env = TestEnv::start(batch.topology, name, &config)
        .await
        .with_context(|| format!("the environment {name} could not be started"))?;
    run_rounds(&mut env, batch, report, progress).await
}

async fn run_rounds(
    env: &mut TestEnv,
    batch: &Batch,
    report: &mut Report,
    progress: Progress<'_>,
) -> Result<()> {
    heal::create_probe(&env.api).await?;
    let mut items = vec![heal::PROBE.to_owned()];
    for round in &batch.rounds {
        let started = Instant::now();
        let (sale_items, description, mut verdict) = run_round(env, round)
            .await
            .with_context(|| format!("round {} ({})", round.number, round.fault))?;
        let ended = env.ended().into_iter();
        verdict
            .findings
            .extend(ended.map(|process| format!("{process} has exited")));
        items.extend(sale_items.iter().map(|item| item.id.clone()));
        items.push(round.item(PRICED));
        progress(&line(round, &description, &verdict, started.elapsed()));
        if !verdict.is_good() {
            progress(&violation(env, &verdict));
        }
        report.add(RoundReport {
            topology: batch.topology,
            round: round.number,
            fault: round.fault,
            description,
            verdict,
        });
    }
    let within = batch.rounds.iter().map(|round| round.health.quiet_within);
    for finding in audit_all(env, &items, within.max().unwrap_or_default()).await {
        progress(&format!(
            "VIOLATION at the end of batch {}: {finding}",
            batch.number
        ));
        report.add_batch_finding(finding);
    }
    Ok(())
}

async fn run_round(
    env: &mut TestEnv,
    round: &Round,
) -> Result<(Vec<Arc<SaleItem>>, String, Verdict)> {
    let items = create_items(env, round).await?;
    let priced = create_priced_item(env, round).await?;
    let workload = Workload::start(&env.api, &items, &priced, round)?;
    let returns = ReturnLog::default();
    let monitor = OversellMonitor::start(env.ledger_view.clone(), &items, returns.clone());
    wait_for_acknowledgements(&workload, round.after).await;
    let pids = env.pids();
    let before = std::time::Instant::now();
    let injected = inject(env, round).await?;
    let api = env.api.clone();
    let healing = heal::wait_until_healthy(&api, &items, injected.ended, round);
    let restart = restart_killed_master(env, injected.killed_master);
    let (healed, restarted) = tokio::join!(healing, restart);
    restarted.context("the killed server could not be restarted")?;
    let in_doubt = round.fault.may_lose_redis_writes().then(|| InDoubt {
        from: before,
        until: healed.is_ok().then(std::time::Instant::now),
    });
    let mut verdict = Verdict {
        findings: injected.findings,
        ..Verdict::default()
    };
    sleep(WORKLOAD_TAIL).await;
    let unseen = wait_until_enough_is_seen(&workload, round.workers).await;
    verdict.findings.extend(unseen);
    let (histories, stock_changes) = workload.stop().await;
    match healed {
        Ok(after) => verdict.healed_after = Some(after),
        Err(reason) => verdict.findings.push(reason),
    }
    // After the workload: beside it, a slow machine would measure which of the two is faster.
    if verdict.healed_after.is_some() {
        match env.subscribers.catch_up(&api, CATCH_UP_TIMEOUT).await {
            Ok(()) => verdict.healed_after = Some(injected.ended.elapsed()),
            Err(reason) => verdict.findings.push(reason),
        }
    }
    let judge = Judge {
        env,
        items: &items,
        histories: &histories.orders,
        carts: &histories.carts,
        stock_changes: &stock_changes,
        returns: &returns,
        in_doubt,
        quiet_within: round.health.quiet_within,
    };
    judge.judge(&mut verdict).await;
    judge_payments(&api, &priced, &histories.payments, &mut verdict).await;
    verdict.judge_what_was_seen();
    judge_events(env, &items, &mut verdict).await;
    if round.fault.is_refusal() {
        let restarted = env.restarted_since(&pids).into_iter();
        verdict.findings.extend(
            restarted.map(|process| format!("{process} was restarted, and did not heal itself")),
        );
    }
    let temporary = monitor.stop().await;
    verdict.oversold += temporary.oversold.len() as u64;
    verdict.half_sold += temporary.divided.len();
    verdict.compared_changes = temporary.compared_changes.len();
    verdict.findings.extend(temporary.oversold);
    verdict.findings.extend(temporary.divided);
    Ok((items, injected.description, verdict))
}

async fn wait_for_acknowledgements(workload: &Workload, acknowledgements: usize) {
    let deadline = Instant::now() + testbed::timeout();
    while workload.acknowledged() < acknowledgements && Instant::now() < deadline {
        sleep(FAULT_START_POLL_INTERVAL).await;
    }
}

/// Creates an item that has a price, and more units than are paid for in a round.
async fn create_priced_item(env: &TestEnv, round: &Round) -> Result<String> {
    let api = env.api.retrying_for(testbed::timeout())?;
    let id = round.item(PRICED);
    let new = NewItem {
        price: Some(PRICE),
        currency: Some("EUR".into()),
        segments: Some(2),
        hold_seconds: Some(2),
        ..NewItem::new(&id, PRICED_STOCK)
    };
    let created = api.admin.create_item(&new).await;
    created.with_context(|| format!("creating the item {id}"))?;
    Ok(id)
}

/// The workload goes on until there is enough to judge: orders that were acknowledged, and one more
/// refusal as sold out than there are workers. So at least one of these began after the tail of the
/// round, when a failover is repaired. Returns what is missing if this never happens: refusals from
/// before a failover say nothing about the time after it.
async fn wait_until_enough_is_seen(workload: &Workload, workers: usize) -> Option<String> {
    let deadline = Instant::now() + testbed::timeout();
    let before = workload.sold_out();
    loop {
        let (acknowledged, refused) = (workload.acknowledged(), workload.sold_out() - before);
        if acknowledged >= ACKNOWLEDGED_MIN && refused > workers {
            return None;
        }
        if Instant::now() > deadline {
            return Some(format!(
                "too little seen: {acknowledged} orders and carts were acknowledged, and {refused} orders refused as sold out after recovery"
            ));
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Creates an item that most sessions buy, one whose orders are acknowledged by Redis, and one of
/// which there is too little from the beginning, so that refusals and units that come back are
/// seen.
async fn create_items(env: &TestEnv, round: &Round) -> Result<Vec<Arc<SaleItem>>> {
    let api = env.api.retrying_for(testbed::timeout())?;
    let mut rng = round.rng("offers");
    let fast = match env.redis.replicas() {
        0 => Durability::Accepted,
        _ => [Durability::Accepted, Durability::Replicated][rng.random_range(0..2)],
    };
    let mut items = Vec::new();
    let (plenty, few) = ((150..600, 4), (6..15, 2));
    for (name, durability, (stock, segments_max)) in [
        ("main", Durability::Recorded, plenty.clone()),
        ("fast", fast, plenty),
        ("scarce", Durability::Recorded, few),
    ] {
        let item = SaleItem {
            id: round.item(name),
            durability,
            stock: rng.random_range(stock),
            limit: rng.random_range(3..8),
            segments: rng.random_range(1..=segments_max),
            hold_seconds: 2,
        };
        let new = NewItem {
            limit_per_buyer: Some(item.limit),
            segments: Some(item.segments),
            hold_seconds: Some(item.hold_seconds),
            max_hold_seconds: Some(item.max_hold_seconds()),
            durability: Some(durability),
            ..NewItem::new(&item.id, item.stock)
        };
        let created = api.admin.create_item(&new).await;
        created.with_context(|| format!("creating the item {}", item.id))?;
        items.push(Arc::new(item));
    }
    Ok(items)
}

async fn audit_all(env: &TestEnv, items: &[String], within: Duration) -> Vec<String> {
    let deadline = Instant::now() + within;
    let mut findings = Vec::new();
    for item in items {
        loop {
            match env.api.admin.full_audit(item).await {
                Ok(audit) if is_quiet(&audit) => break,
                other if Instant::now() > deadline => {
                    findings.push(format!("{item}: {other:?}"));
                    break;
                }
                _ => sleep(FINAL_AUDIT_POLL_INTERVAL).await,
            }
        }
    }
    findings
}

fn line(round: &Round, description: &str, verdict: &Verdict, took: Duration) -> String {
    let Verdict {
        acknowledged,
        lost,
        oversold,
        stranded,
        healed_after,
        ..
    } = verdict;
    let word = if verdict.is_good() { "ok" } else { "VIOLATION" };
    let healed = healed_after.map_or_else(
        || "did not heal".to_owned(),
        |after| format!("healed in {:.2} s", after.as_secs_f64()),
    );
    format!(
        "{:>4} {word:<9} {:<22} {acknowledged:>5} acknowledged, {lost} lost, {oversold} oversold, {stranded} stranded, {healed} ({:.0} s): {description}",
        round.number,
        round.fault.to_string(),
        took.as_secs_f64()
    )
}

/// The findings, and the last warnings of every process.
fn violation(env: &TestEnv, verdict: &Verdict) -> String {
    let findings = verdict.findings.iter().take(FINDINGS_SHOWN);
    let mut lines: Vec<_> = findings
        .map(|finding| format!("       {finding}"))
        .collect();
    if verdict.findings.len() > FINDINGS_SHOWN {
        let more = verdict.findings.len() - FINDINGS_SHOWN;
        lines.push(format!("       and {more} more"));
    }
    for process in &env.processes {
        lines.extend(last_warnings(process.daemon.log()));
    }
    lines.join("\n")
}

fn last_warnings(log: &std::path::Path) -> Vec<String> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let is_warning = |line: &&str| !line.contains(" INFO ");
    let warnings: Vec<_> = text.lines().filter(is_warning).collect();
    let mut lines = vec![format!(
        "       --- {}: the last of {} warnings",
        log.display(),
        warnings.len()
    )];
    let last = &warnings[warnings.len().saturating_sub(LOG_LINES_SHOWN)..];
    lines.extend(last.iter().map(|line| {
        let line: String = line.chars().take(LINE_CHARACTERS_MAX).collect();
        format!("       {line}")
    }));
    lines
}

//! One leg after the other, one round after the other.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use futures::{StreamExt, stream};
use rand::RngExt;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    book::{Level, Offer},
    crowd::Rush,
    heal,
    inject::{come_back, inject},
    judge::{Case, Verdict},
    plan::{Leg, Plan, Round},
    report::{Judged, Report},
    shop::{Reply, insist},
    stage::{Materials, Stage},
    watch::Watch,
};

/// How long the crowd goes on when all is well again.
const AFTERWARDS: Duration = Duration::from_millis(300);
/// How long the crowd may take to get as far as the fault.
const BEGUN_WITHIN: Duration = Duration::from_secs(15);
/// How long a leg's items may take to be in order at its end.
const AUDITED_WITHIN: Duration = Duration::from_secs(20);
/// What is shown of a violation; the rest is in `summary.json` and the logs.
const FINDINGS_SHOWN: usize = 20;
const LOG_LINES: usize = 8;
const LINE_CHARACTERS: usize = 300;

/// What is told what happens.
pub type Say<'a> = &'a (dyn Fn(&str) + Sync);

/// Carries the plan out, so many legs at a time: one, if it matters how long healing takes.
pub async fn run(plan: &Plan, materials: &Materials, at_once: usize, say: Say<'_>) -> Report {
    let mut report = Report::new(plan);
    let legs = stream::iter(&plan.legs).map(|leg| run_leg(leg, plan, materials, say));
    let mut legs = legs.buffer_unordered(at_once);
    while let Some(of_leg) = legs.next().await {
        report.take_in(of_leg);
    }
    report
}

async fn run_leg(leg: &Leg, plan: &Plan, materials: &Materials, say: Say<'_>) -> Report {
    let name = format!("leg-{:02}-{}", leg.number, leg.stage);
    let (all, faults, logs) = (plan.legs.len(), leg.rounds.len(), materials.out.join(&name));
    say(&format!(
        "leg {} of {all}: {faults} faults on `{}`, logs in {}",
        leg.number,
        leg.stage,
        logs.display()
    ));
    let mut report = Report::new(plan);
    // What was seen until then, here and on other stages, is worth as much as before.
    if let Err(error) = build_and_run(leg, &name, materials, &mut report, say).await {
        let finding = format!("leg {} was given up: {error:#}", leg.number);
        say(&format!("VIOLATION {finding}"));
        report.at_the_end(finding);
    }
    report
}

async fn build_and_run(
    leg: &Leg,
    name: &str,
    materials: &Materials,
    report: &mut Report,
    say: Say<'_>,
) -> Result<()> {
    let mut stage = Stage::build(leg.stage, name, materials)
        .await
        .with_context(|| format!("the stage {name} could not be built"))?;
    run_rounds(&mut stage, leg, report, say).await
}

async fn run_rounds(stage: &mut Stage, leg: &Leg, report: &mut Report, say: Say<'_>) -> Result<()> {
    heal::open_probe(&stage.shop).await?;
    let mut items = vec![heal::PROBE.to_owned()];
    for round in &leg.rounds {
        let began = Instant::now();
        let (offers, story, mut verdict) = run_round(stage, round)
            .await
            .with_context(|| format!("round {} ({})", round.number, round.fault))?;
        for process in stage.ended() {
            verdict.findings.push(format!("{process} has ended"));
        }
        items.extend(offers.iter().map(|offer| offer.item.clone()));
        say(&line(round, &story, &verdict, began.elapsed()));
        if !verdict.is_good() {
            say(&violation(stage, &verdict));
        }
        report.add(Judged {
            stage: leg.stage,
            round: round.number,
            fault: round.fault,
            story,
            verdict,
        });
    }
    for finding in audit_all(stage, &items).await {
        say(&format!(
            "VIOLATION at the end of leg {}: {finding}",
            leg.number
        ));
        report.at_the_end(finding);
    }
    Ok(())
}

async fn run_round(stage: &mut Stage, round: &Round) -> Result<(Vec<Arc<Offer>>, String, Verdict)> {
    let offers = open_offers(stage, round).await?;
    let rush = Rush::begin(&stage.shop, &offers, round)?;
    let watch = Watch::begin(stage.view.clone(), &offers);
    let mut verdict = Verdict::default();
    let begun = Instant::now() + BEGUN_WITHIN;
    while rush.acknowledged() < round.after && Instant::now() < begun {
        sleep(Duration::from_millis(2)).await;
    }
    let injected = inject(stage, round).await?;
    let shop = Arc::clone(&stage.shop);
    let healing = heal::until_well(&shop, &offers, injected.over, round.number);
    let (well, come_back) = tokio::join!(healing, come_back(stage, injected.to_come_back));
    come_back.context("the killed server did not come back")?;
    match well {
        Ok(after) => verdict.healed_after = Some(after),
        Err(why) => verdict.findings.push(why),
    }
    sleep(AFTERWARDS).await;
    let (entries, moved) = rush.end().await;
    let case = Case {
        stage,
        offers: &offers,
        entries: &entries,
        moved: &moved,
        redis_may_lose: round.fault.may_lose_writes_of_redis(),
    };
    case.judge(&mut verdict).await;
    for seen in watch.end().await {
        verdict.oversold += 1;
        verdict.findings.push(seen);
    }
    Ok((offers, injected.story, verdict))
}

/// One that nearly everybody wants, and one whose acknowledgements rest on Redis.
async fn open_offers(stage: &Stage, round: &Round) -> Result<Vec<Arc<Offer>>> {
    let mut dice = round.dice("offers");
    let fast = match stage.redis.replicas() {
        0 => Level::Accepted,
        _ => [Level::Accepted, Level::Replicated][dice.random_range(0..2)],
    };
    let mut offers = Vec::new();
    for (name, level) in [("main", Level::Recorded), ("fast", fast)] {
        let offer = Offer {
            item: format!("{name}-{}", round.number),
            level,
            stock: dice.random_range(150..600),
            limit: dice.random_range(3..8),
            segments: dice.random_range(1..=4),
            hold_seconds: 2,
        };
        let Offer {
            item,
            stock,
            limit,
            segments,
            hold_seconds,
            ..
        } = &offer;
        let body = json!({
            "id": item, "stock": stock, "limit_per_buyer": limit, "segments": segments,
            "hold_seconds": hold_seconds, "durability": level.as_str(),
        });
        insist(Instant::now() + BEGUN_WITHIN, || stage.shop.create(&body))
            .await
            .done("opening an item")?;
        offers.push(Arc::new(offer));
    }
    Ok(offers)
}

async fn audit_all(stage: &Stage, items: &[String]) -> Vec<String> {
    let (mut findings, until) = (Vec::new(), Instant::now() + AUDITED_WITHIN);
    for item in items {
        loop {
            match stage.shop.audit(item).await {
                Reply::Done(audit) if audit.is_quiet() => break,
                other if Instant::now() > until => {
                    findings.push(format!("{item}: {other:?}"));
                    break;
                }
                _ => sleep(Duration::from_millis(50)).await,
            }
        }
    }
    findings
}

fn line(round: &Round, story: &str, verdict: &Verdict, took: Duration) -> String {
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
        "{:>4} {word:<9} {:<22} {acknowledged:>5} acknowledged, {lost} lost, {oversold} oversold, {stranded} stranded, {healed} ({:.0} s): {story}",
        round.number,
        round.fault.to_string(),
        took.as_secs_f64()
    )
}

fn violation(stage: &Stage, verdict: &Verdict) -> String {
    let mut text: Vec<_> = verdict
        .findings
        .iter()
        .take(FINDINGS_SHOWN)
        .map(|finding| format!("       {finding}"))
        .collect();
    if verdict.findings.len() > FINDINGS_SHOWN {
        text.push(format!(
            "       and {} more",
            verdict.findings.len() - FINDINGS_SHOWN
        ));
    }
    for process in &stage.processes {
        let log = std::fs::read_to_string(process.daemon.log()).unwrap_or_default();
        let troubles: Vec<_> = log
            .lines()
            .filter(|line| !line.contains(" INFO "))
            .collect();
        text.push(format!(
            "       --- {}: the last of {} lines of trouble",
            process.daemon.log().display(),
            troubles.len()
        ));
        let last = &troubles[troubles.len().saturating_sub(LOG_LINES)..];
        text.extend(last.iter().map(|line| {
            format!(
                "       {}",
                line.chars().take(LINE_CHARACTERS).collect::<String>()
            )
        }));
    }
    text.join("\n")
}

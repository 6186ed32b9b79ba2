//! Blind repair: a reconciler sets the counter in Redis to what SQL says, while orders are on their way to SQL.

pub(crate) mod recorder;
mod shop;

use std::{sync::Arc, time::Duration};

use anyhow::{Result, bail, ensure};
use async_trait::async_trait;
use redis::AsyncCommands;
use reqwest::Client;
use serde_json::json;
use sqlx::postgres::PgPoolOptions;

use self::{
    recorder::{IDLE, IN_HAND, Task},
    shop::{LEFT, Repair, SCHEMA, Shop},
};
use crate::{
    actor::{Actor, Role},
    case::{Case, Story, Way},
    engine::{Engine, Instance, Ordered},
    evidence::Evidence,
    point::Point,
    stage::Stage,
    timeline::Event,
    what_if::Knob,
};

/// Of the stock, in hundredths: sold and recorded, and then sold and on its way to SQL.
const RECORDED: u64 = 60;
const ON_THEIR_WAY: u64 = 10;
/// Orders that come while the reconciler is at work.
const MEANWHILE: u64 = 2;
/// Units that were really lost.
const LOST: u64 = 3;
/// What lies between two events of the schedule, in the story.
const MOMENT: Duration = Duration::from_secs(2);
/// How long the reconciler waits before it looks again, in the story.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The case.
pub struct BlindRepair;

const STORY: &str = "SET from SQL";
const TWICE: &str = "the same difference twice";
const IDLE_QUEUE: &str = "only if the queue is empty";
const IDENTITY: &str = "checkpoint identity";
const ENGINE: &str = "the engine";

#[async_trait]
impl Case for BlindRepair {
    fn name(&self) -> &'static str {
        "blind-repair"
    }

    fn story(&self) -> Story {
        Story {
            title: "The nightly repair that makes units from nothing",
            told: "Redis sells, a queue carries the orders, SQL has the truth. Now and then the two differ, since somebody crashed between two \
                   steps, and so a job sets the counter in Redis to what SQL says. But SQL does not know yet of the orders that are on their \
                   way, and when the recorder lags they are many: each of their units is sold a second time.",
            sources: &[
                (
                    "Stock in a cache, and a job that synchronises it when it was lost (in Chinese)",
                    "https://biecuoliao.com/pa/38Dn9l3.html",
                ),
                (
                    "springboot-seckill: SeckillController loads the counter from SQL again when it is below zero, with orders in the queue",
                    "https://github.com/zaiyunduan123/springboot-seckill",
                ),
            ],
            schedule: "Of 100 units 60 are sold and recorded. An operator takes 3 off the counter by mistake: a real loss. Ten more are sold, and \
                       the recorder is stopped (SIGSTOP) with these orders in its hand. The reconciler compares, two more orders come, and it \
                       repairs. Then the recorder goes on, and others buy until nothing is left.",
            instead: "Let every change of the counter leave an entry in a log, in the same step, and let SQL keep up to where it has it. Then the \
                      two can be compared at any moment, orders on their way included; what is left unexplained is the loss. Repair by \
                      compare-and-set on the last entry, never by a look that may be old.",
        }
    }

    fn ways(&self) -> Vec<Way> {
        vec![
            Way::faulty(
                STORY,
                "the reconciler compares, and sets Redis to what SQL says",
                "the orders on their way are not in SQL yet",
            ),
            Way::does_not_help(
                TWICE,
                "only if the difference is the same 5 s later",
                "a recorder that stands still makes a difference that stands still",
            ),
            Way::does_not_help(
                IDLE_QUEUE,
                "only if the queue of orders is empty",
                "the recorder has taken them off the queue, and not written them yet",
            ),
            Way::holds(
                IDENTITY,
                "SQL at its checkpoint, less the log after it, must be Redis; the rest is added if the log has not moved",
                "it finds the 3 units that were lost, and only these",
            ),
            Way::holds(
                ENGINE,
                "Stockade: the recorder is killed with orders on their way, and `stockade reconcile` is run (nothing was lost)",
                "its identity counts the orders on their way, and there is nothing to repair",
            ),
        ]
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob::Stock]
    }

    async fn play(&self, way: &str, stage: &Stage) -> Result<Evidence> {
        let repair = match way {
            STORY => Repair::Overwrite,
            TWICE => Repair::OverwriteAfter(stage.pace.real(LOOK_AGAIN)),
            IDLE_QUEUE => Repair::OverwriteWhenIdle,
            IDENTITY => Repair::Identity,
            ENGINE => return play_engine(stage).await,
            _ => bail!("no such way: {way}"),
        };
        play_shop(stage, repair).await
    }
}

/// Enough that what is sold, lost and sold meanwhile leaves something.
fn stock(stage: &Stage) -> u64 {
    stage.what_if.stock.unwrap_or(100).max(20)
}

async fn play_shop(stage: &Stage, repair: Repair) -> Result<Evidence> {
    let (redis, database_url, stock) =
        (stage.redis().await?, stage.database().await?, stock(stage));
    let pool = PgPoolOptions::new()
        .max_connections(2)
        .connect(&database_url)
        .await?;
    sqlx::raw_sql(SCHEMA).execute(&pool).await?;
    sqlx::query("INSERT INTO items VALUES ($1, '0-0')")
        .bind(i64::try_from(stock)?)
        .execute(&pool)
        .await?;
    let outbox = repair == Repair::Identity;
    let shop = Shop {
        redis: stage.connect(&redis).await?,
        pool,
        outbox,
    };
    let () = shop.redis.clone().set(LEFT, stock).await?;
    let mut sale = Sale {
        stage,
        shop,
        sold: 0,
        stock,
    };
    let task = Task {
        redis_url: redis.url(),
        database_url,
        outbox,
    };
    let mut recorder = Actor::start(stage, "recorder", Role::Recorder, &task).await?;
    recorder.until(IDLE).await?;
    sale.note_left().await?;

    sale.sell(stock * RECORDED / 100).await?;
    recorder.go().await?;
    recorder.until(IDLE).await?;
    stage.pace.sleep(MOMENT).await;
    stage
        .timeline
        .lane("operator")
        .notes(Event::Fault, format!("takes {LOST} off the counter"));
    let () = sale.shop.redis.clone().decr(LEFT, LOST).await?;
    sale.note_left().await?;
    stage.pace.sleep(MOMENT).await;
    sale.sell(stock * ON_THEIR_WAY / 100).await?;
    recorder.until(IN_HAND).await?;
    let stopped = recorder.pause().await?;
    stage.pace.sleep(MOMENT).await;

    sale.reconcile(repair).await?;
    stage.pace.sleep(MOMENT).await;
    recorder.resume(stopped).await?;
    sale.sell(u64::MAX).await?;
    recorder.until(IDLE).await?;
    recorder.go().await?;
    recorder.until(IDLE).await?;
    sale.count().await
}

/// A sale that has begun.
struct Sale<'a> {
    stage: &'a Stage,
    shop: Shop,
    sold: u64,
    stock: u64,
}

impl Sale<'_> {
    /// So many buy, or as many as there are units.
    async fn sell(&mut self, units: u64) -> Result<()> {
        let lane = self.stage.timeline.lane("buyers");
        for _ in 0..units {
            if !self.shop.buy(&format!("order-{}", self.sold)).await? {
                lane.notes(Event::Refused, "sold out");
                break;
            }
            self.sold += 1;
            let event = if self.sold > self.stock {
                Event::Harm
            } else {
                Event::Sale
            };
            lane.notes(event, format!("unit {} of {}", self.sold, self.stock));
        }
        self.note_left().await
    }

    async fn reconcile(&mut self, repair: Repair) -> Result<()> {
        let (lane, looked) = (
            self.stage.timeline.lane("reconciler"),
            Arc::new(Point::closed()),
        );
        let mut reconciling = {
            let (shop, lane, looked) = (self.shop.clone(), lane.clone(), Arc::clone(&looked));
            tokio::spawn(async move { shop.reconcile(repair, &lane, &looked).await })
        };
        tokio::select! {
            () = looked.reached_by(1) => {}
            // It has found nothing to do.
            done = &mut reconciling => return done?,
        }
        self.sell(MEANWHILE).await?;
        looked.open();
        reconciling.await??;
        self.note_left().await
    }

    async fn note_left(&self) -> Result<()> {
        self.stage.timeline.stock(self.shop.left().await?);
        Ok(())
    }

    /// Everybody who could have had a unit was refused in the end.
    async fn count(&self) -> Result<Evidence> {
        let orders: i64 = sqlx::query_scalar("SELECT count(*) FROM orders")
            .fetch_one(&self.shop.pool)
            .await?;
        ensure!(
            u64::try_from(orders)? == self.sold,
            "{} were sold, {orders} are in SQL",
            self.sold
        );
        Ok(evidence(self.stock, self.sold))
    }
}

fn evidence(stock: u64, sold: u64) -> Evidence {
    Evidence::new()
        .sold(stock, sold)
        .stranded(stock.saturating_sub(sold))
        .judge_oversold()
        .judge_stranded()
}

async fn play_engine(stage: &Stage) -> Result<Evidence> {
    let (redis, database_url, stock) =
        (stage.redis().await?, stage.database().await?, stock(stage));
    let instance = |name, roles| {
        let (redis_url, database_url) = (redis.url(), database_url.clone());
        Engine::start_instance(
            stage,
            Instance {
                name,
                redis_url,
                database_url,
                roles,
                settings: Vec::new(),
            },
        )
    };
    let shop = instance("shop", "order").await?;
    let mut recorder = instance("recorder", "recorder").await?;
    let item = shop
        .offer(json!({ "id": "phones", "stock": stock }))
        .await?;
    let (client, lane, mut sold) = (Client::new(), stage.timeline.lane("buyers"), 0);
    stage.timeline.stock(i64::try_from(stock)?);
    let mut sell = async |units: u64| {
        for n in 0..units {
            match shop
                .counter
                .order_soon(&client, &item, &format!("buyer-{sold}"), "a-phone")
                .await?
            {
                Ordered::Placed(_) => {
                    sold += 1;
                    lane.notes(Event::Sale, format!("unit {sold} of {stock}"));
                }
                Ordered::Refused => break,
                Ordered::Unknown => bail!("order {n} has no outcome"),
            }
        }
        let left = shop.audit(&item).await?.available;
        stage.timeline.stock(i64::try_from(left)?);
        Ok(sold)
    };
    sell(stock * RECORDED / 100).await?;
    shop.audit_says(&item, |audit| audit.in_flight == 0).await?;
    let down = recorder.kill(&stage.timeline.lane("recorder")).await?;
    let on_their_way = stock * ON_THEIR_WAY / 100;
    sell(on_their_way).await?;
    ensure!(
        shop.audit(&item).await?.in_flight == on_their_way,
        "they are on their way"
    );
    let said = shop.reconcile(&item).await?;
    stage
        .timeline
        .lane("reconciler")
        .notes(Event::Note, format!("stockade reconcile: {}", said.trim()));
    recorder.restart().await?;
    drop(down);
    let sold = sell(stock).await?;
    let audit = shop.audit_says(&item, |audit| audit.in_flight == 0).await?;
    ensure!(
        audit.promised() == sold,
        "{sold} were sold, the ledger says {}",
        audit.promised()
    );
    Ok(evidence(stock, sold))
}

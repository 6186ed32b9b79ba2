//! Late payment: the money comes when the hold is over and the unit is somebody else's.

mod sql_shop;

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use async_trait::async_trait;
use reqwest::Client;
use serde_json::json;
use testbed::{Proxy, Redis, Traffic};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use self::sql_shop::{Paid, SqlShop};
use crate::{
    case::{Case, Story, Way},
    engine::{Counter, Engine},
    evidence::{Evidence, Measure},
    stage::Stage,
    timeline::{Doing, Event, Lane},
    what_if::Knob,
};

/// How long a unit is held for a buyer, in the story.
const HOLD: Duration = Duration::from_secs(20);
/// How often the shop looks for holds that are over.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What lies between two events after the holds.
const MOMENT: Duration = Duration::from_secs(3);
/// How long the play waits for the holds to end, really.
const ENDS_WITHIN: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The case.
pub struct LatePayment;

const STORY: &str = "paid if still held";
const ANYWAY: &str = "paid is paid";
const REFUND: &str = "refund due";
const RETAKE: &str = "retake, or refund due";
const ENGINE: &str = "the engine";

#[async_trait]
impl Case for LatePayment {
    fn name(&self) -> &'static str {
        "late-payment"
    }

    fn story(&self) -> Story {
        Story {
            title: "Charged, and no goods: the payment came after the hold",
            told: "A shop holds a unit for a buyer for as long as the clock on the page runs, and then gives it back. The buyer has paid in time, \
                   but the payment provider's message is late, by seconds or by hours. It finds an order that is closed, the shop ignores it, \
                   and the unit is sold to somebody else: the buyer is charged, and has neither goods nor money.",
            sources: &[
                (
                    "\"Ghost payments\": the order is closed, and then the payment succeeds (in Chinese)",
                    "https://www.ahimu.com/posts/33",
                ),
                (
                    "WeChat Pay: why an order must be closed at the provider, too",
                    "https://pay.weixin.qq.com/wiki/doc/api/wxpay/en/guide/pos/Closed-loop_Transactions.shtml",
                ),
            ],
            schedule: "Ann and Bert have the last two units, held for 20 s, and pay at once. The provider's messages are held up on their way. \
                       The holds end, and Cleo buys one of the units and pays by another provider. Then the messages arrive.",
            instead: "Let a payment end in exactly one of three states, decided by one checked update: paid, paid with a unit taken anew, or \
                      refund due. Money that has no goods must be written down where somebody gives it back. Close the order at the \
                      provider when the hold ends; it makes late payments rarer, not impossible.",
        }
    }

    fn ways(&self) -> Vec<Way> {
        vec![
            Way::faulty(
                STORY,
                "UPDATE orders SET state = 'paid' WHERE id = ? AND state = 'held'; no row is no problem",
                "whoever paid for an order that has expired is not written down anywhere",
            ),
            Way::does_not_help(
                ANYWAY,
                "the same without looking at the state: the money is there",
                "the unit went back when the hold ended, and is sold a second time",
            ),
            Way::holds(
                REFUND,
                "an expired order that is paid becomes refund_due",
                "everybody has goods or money, though there was a unit for one of those who get money",
            ),
            Way::holds(
                RETAKE,
                "a unit is taken anew if there is one, in the same transaction; if not, refund_due",
                "whoever can be served is served, and the others get their money",
            ),
            Way::holds(
                ENGINE,
                "Stockade, with signed messages of the provider",
                "a late payment retakes or is marked refund_due, and the version of the order decides",
            ),
        ]
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob::Stock]
    }

    async fn play(&self, way: &str, stage: &Stage) -> Result<Evidence> {
        let stock = stage.what_if.stock.unwrap_or(2).max(2);
        let shop = match way {
            STORY => Shop::open(stage, stock, Paid::IfHeld).await?,
            ANYWAY => Shop::open(stage, stock, Paid::Anyway).await?,
            REFUND => Shop::open(stage, stock, Paid::OrRefund).await?,
            RETAKE => Shop::open(stage, stock, Paid::OrRetakeOrRefund).await?,
            ENGINE => Shop::open_engine(stage, stock).await?,
            _ => bail!("no such way: {way}"),
        };
        play(stage, &shop, stock).await
    }
}

/// Where it is bought.
enum Shop {
    Sql(SqlShop),
    Engine {
        engine: Box<Engine>,
        item: String,
        client: Client,
        _redis: Box<Redis>,
    },
}

impl Shop {
    async fn open(stage: &Stage, stock: u64, paid: Paid) -> Result<Self> {
        let (hold, look_every) = (stage.pace.real(HOLD), stage.pace.real(LOOK_EVERY));
        Ok(Self::Sql(
            SqlShop::open(&stage.database().await?, stock, hold, look_every, paid).await?,
        ))
    }

    async fn open_engine(stage: &Stage, stock: u64) -> Result<Self> {
        let redis = stage.redis().await?;
        let engine = Engine::start(stage, &redis).await?;
        // The engine counts whole seconds.
        let hold_seconds = stage.pace.real(HOLD).as_secs_f64().ceil();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a few seconds"
        )]
        let item = engine
            .offer(json!({ "id": "tables", "stock": stock, "hold_seconds": hold_seconds as u64 }))
            .await?;
        Ok(Self::Engine {
            engine: Box::new(engine),
            item,
            client: Client::new(),
            _redis: Box::new(redis),
        })
    }

    fn port(&self) -> Result<u16> {
        match self {
            Self::Sql(shop) => Ok(shop.port),
            Self::Engine { engine, .. } => engine.counter.port(),
        }
    }

    /// Holds a unit; the order.
    async fn hold(&self, buyer: &str) -> Result<String> {
        match self {
            Self::Sql(shop) => {
                ensure!(shop.hold(buyer).await?, "there is a unit for {buyer}");
                Ok(buyer.to_owned())
            }
            Self::Engine {
                engine,
                item,
                client,
                ..
            } => {
                let order = engine
                    .counter
                    .insist(client, item, buyer, "a-table")
                    .await?;
                order.with_context(|| format!("there is a unit for {buyer}"))
            }
        }
    }

    /// The provider's message, sent to this port.
    fn reported(&self, port: u16, order: &str) -> impl Future<Output = Result<()>> + Send + use<> {
        let (order, url) = (order.to_owned(), format!("http://127.0.0.1:{port}"));
        let is_signed = matches!(self, Self::Engine { .. });
        async move {
            let client = Client::new();
            if is_signed {
                Counter::at(url)
                    .pay(&client, &order, &format!("payment-of-{order}"))
                    .await?;
            } else {
                client
                    .post(format!("{url}/orders/{order}/payment"))
                    .send()
                    .await?
                    .error_for_status()?;
            }
            Ok(())
        }
    }

    async fn state(&self, order: &str) -> Result<String> {
        match self {
            Self::Sql(shop) => shop.state(order).await,
            Self::Engine { engine, client, .. } => engine.counter.state(client, order).await,
        }
    }

    async fn available(&self) -> Result<u64> {
        match self {
            Self::Sql(shop) => shop.available().await,
            Self::Engine { engine, item, .. } => Ok(engine.audit(item).await?.available),
        }
    }

    /// Waits until every unit is free.
    async fn holds_end(&self, stock: u64) -> Result<()> {
        let deadline = Instant::now() + ENDS_WITHIN;
        while self.available().await? < stock {
            ensure!(Instant::now() < deadline, "the holds do not end");
            sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }
}

/// As many buyers as there are units pay in time, and the shop hears of it when the holds are over and all units but one are sold again.
async fn play(stage: &Stage, shop: &Shop, stock: u64) -> Result<Evidence> {
    let provider = Proxy::start(shop.port()?).await?;
    let (late, others) = (
        names(&["Ann", "Bert"], "early", stock),
        names(&["Cleo"], "later", stock - 1),
    );
    let (shop_lane, provider_lane) = (
        stage.timeline.lane("shop"),
        stage.timeline.lane("payment provider"),
    );
    stage.timeline.stock(i64::try_from(stock)?);
    let mut late_orders = Vec::new();
    for buyer in &late {
        late_orders.push(shop.hold(buyer).await?);
    }
    let held = shop_lane.is(Doing::Working, "holds the units");
    stage.timeline.stock(0);
    provider_lane.notes(Event::Fault, "its messages are held up");
    let stalled = provider_lane.is(Doing::Stalled, "messages on their way");
    provider.set(Traffic::Hold);
    let mut messages = JoinSet::new();
    for (buyer, order) in late.iter().zip(&late_orders) {
        lane(stage, buyer).notes(Event::Note, "pays, and is charged");
        messages.spawn(shop.reported(provider.port(), order));
    }

    shop.holds_end(stock).await?;
    drop(held);
    shop_lane.notes(Event::Expired, "the holds are over");
    stage.timeline.stock(i64::try_from(stock)?);
    stage.pace.sleep(MOMENT).await;
    let mut orders = Vec::new();
    for buyer in &others {
        let order = shop.hold(buyer).await?;
        shop.reported(shop.port()?, &order).await?;
        lane(stage, buyer).notes(Event::Note, "buys a unit, and pays");
        orders.push(order);
    }
    stage
        .timeline
        .stock(i64::try_from(shop.available().await?)?);

    stage.pace.sleep(MOMENT).await;
    drop(stalled);
    provider_lane.notes(Event::Note, "the messages arrive");
    provider.set(Traffic::Pass);
    while let Some(message) = messages.join_next().await {
        message?.context("the provider's message")?;
    }
    stage.pace.sleep(MOMENT).await;
    orders.extend(late_orders);
    let buyers: Vec<_> = others.into_iter().chain(late).collect();
    count(stage, shop, stock, &buyers, &orders).await
}

/// Who is in the story, and as many others as a reader wants.
fn names(known: &[&str], others: &str, n: u64) -> Vec<String> {
    let known = known.iter().map(|name| (*name).to_owned());
    known
        .chain((1..).map(|n| format!("{others}-{n}")))
        .take(usize::try_from(n).unwrap_or(usize::MAX))
        .collect()
}

/// A picture with a lane for each of a hundred buyers shows nothing.
fn lane(stage: &Stage, buyer: &str) -> Lane {
    stage.timeline.lane(if buyer.contains('-') {
        "other buyers"
    } else {
        buyer
    })
}

/// Everybody was charged. Whoever has no unit must have money to come.
async fn count(
    stage: &Stage,
    shop: &Shop,
    stock: u64,
    buyers: &[String],
    orders: &[String],
) -> Result<Evidence> {
    let (mut sold, mut in_vain) = (0, 0);
    for (buyer, order) in buyers.iter().zip(orders) {
        let lane = self::lane(stage, buyer);
        match shop.state(order).await?.as_str() {
            "paid" | "confirmed" => {
                sold += 1;
                let event = if sold > stock {
                    Event::Harm
                } else {
                    Event::Sale
                };
                lane.notes(
                    event,
                    if sold > stock {
                        "has a unit that does not exist"
                    } else {
                        "has a unit"
                    },
                );
            }
            "refund_due" => lane.notes(Event::Refused, "gets the money back"),
            state => {
                in_vain += 1;
                lane.notes(Event::Harm, format!("charged, and the order is {state}"));
            }
        }
    }
    stage
        .timeline
        .stock(i64::try_from(shop.available().await?)?);
    Ok(Evidence::new()
        .sold(stock, sold)
        .judge(Measure::ChargedInVain, in_vain, 0)
        .judge_oversold())
}

//! Two sellers in processes of their own, under a lock of a coordination service. The first is stopped for longer than the service believes in
//! it, and resumes after the second has sold.

use std::time::Duration;

use anyhow::{Result, bail};
use async_trait::async_trait;
use lock::FencingToken;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    etcd_lease::EtcdLock,
    last_unit::{Sale, Seen, Shelf},
    zookeeper_session::ZooKeeperRecipe,
};
use crate::{
    actor::{Actor, Host, Role},
    evidence::{Evidence, Measure},
    stage::Stage,
    timeline::{Doing, Event},
};

/// Where a seller stands with its decision made.
const DECIDED: &str = "after the stock was read";

/// What a seller is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    pub service: Service,
    /// Of the item's row.
    pub database: String,
    pub check: Check,
    /// For how long the service believes in a seller that it does not hear of, in the story.
    pub lease: f64,
}

/// Who keeps the lock.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Service {
    ZooKeeper {
        servers: String,
        parent: String,
        session_ms: u64,
    },
    Etcd {
        url: String,
        name: String,
        lease_s: u64,
    },
}

/// What is checked before a sale counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Check {
    Nothing,
    /// The seller asks the service whether the lock is still its own, and then writes.
    Asked,
    /// The row is claimed with the token, and written with token and version.
    Row,
    /// The stock is in the service itself, which writes only if the lock's key is still there.
    Service,
}

/// What became of a seller.
#[derive(Debug, Serialize, Deserialize)]
struct Tally {
    sold: bool,
}

/// A lock of a coordination service, as its clients write it.
#[async_trait]
pub(crate) trait Coordination: Send {
    /// Waits until it is ours. The service's own number for that.
    async fn lock(&mut self) -> Result<i64>;

    /// Asks the service.
    async fn is_ours(&mut self) -> Result<bool>;

    /// Gives it back, if it is there.
    async fn unlock(&mut self) -> Result<()>;

    /// The stock in the service.
    async fn stock(&mut self) -> Result<i64> {
        bail!("this service keeps no stock")
    }

    /// Sets it, if the lock is still ours. Whether it was.
    async fn set_stock(&mut self, _left: i64) -> Result<bool> {
        bail!("this service keeps no stock")
    }
}

/// Two sellers of one unit. The first is stopped with its decision made.
pub(super) async fn play(stage: &Stage, task: Task) -> Result<Evidence> {
    let shelf = Shelf::create(&task.database).await?;
    stage.timeline.stock(1);
    let mut first = Actor::start(stage, "seller A", Role::LeaseHolder, &task).await?;
    first.until(DECIDED).await?;
    let mut second = Actor::start(stage, "seller B", Role::LeaseHolder, &task).await?;
    let stopped = first.pause().await?;
    // It comes as far as that only when the service has given up the first one.
    second.until(DECIDED).await?;
    let successor: Tally = second.finish().await?;
    stage.timeline.stock(if successor.sold { 0 } else { 1 });
    first.resume(stopped).await?;
    let zombie: Tally = first.finish().await?;
    if zombie.sold {
        first.lane().notes(Event::Harm, "the unit is sold twice");
    }
    let told = u64::from(successor.sold) + u64::from(zombie.sold);
    anyhow::ensure!(
        task.check == Check::Service || told == shelf.orders().await?,
        "sellers and orders do not agree"
    );
    let timeline = &stage.timeline;
    let evidence = Evidence::new()
        .sold(1, told)
        .holders(timeline.holders_at_once())
        .stuck(timeline.longest(Doing::Waiting));
    let evidence =
        evidence
            .judge_oversold()
            .judge(Measure::ZombieWrites, u64::from(zombie.sold), 0);
    super::last_unit::was_broken(evidence)
}

/// Is a seller.
pub(crate) async fn serve(host: &Host, task: Task) -> Result<Value> {
    let shelf = Shelf::open(&task.database).await?;
    let mut seller = Seller {
        host,
        shelf,
        lock: connect(&task.service).await?,
        check: task.check,
    };
    let waiting = host.begins(Doing::Waiting, "wants the lock").await?;
    let token = seller.lock.lock().await?;
    host.ends(waiting).await?;
    let inside = host
        .holds(
            &format!("number {token}"),
            Duration::from_secs_f64(task.lease),
        )
        .await?;
    let sold = seller.sell(token).await?;
    host.ends(inside).await?;
    seller.lock.unlock().await?;
    Ok(serde_json::to_value(Tally { sold })?)
}

async fn connect(service: &Service) -> Result<Box<dyn Coordination>> {
    Ok(match service {
        Service::ZooKeeper {
            servers,
            parent,
            session_ms,
        } => Box::new(
            ZooKeeperRecipe::connect(servers, parent, Duration::from_millis(*session_ms)).await?,
        ),
        Service::Etcd { url, name, lease_s } => {
            Box::new(EtcdLock::connect(url, name, *lease_s).await?)
        }
    })
}

struct Seller<'a> {
    host: &'a Host,
    shelf: Shelf,
    lock: Box<dyn Coordination>,
    check: Check,
}

impl Seller<'_> {
    /// Reads, decides, and is perhaps stopped before it writes.
    async fn sell(&mut self, token: i64) -> Result<bool> {
        if self.check == Check::Service {
            return self.sell_in_service().await;
        }
        let token = FencingToken::new(token).filter(|_| self.check == Check::Row);
        let Some(seen) = self.shelf.read(token).await? else {
            return self.refused("the row knows a later one").await;
        };
        self.host.notes(Event::Note, "reads the stock").await?;
        if self.check == Check::Asked && !self.asks().await? {
            return self.refused("the lock is gone").await;
        }
        self.host.point(DECIDED).await?;
        self.write(seen).await
    }

    async fn asks(&mut self) -> Result<bool> {
        let ours = self.lock.is_ours().await?;
        self.host
            .notes(
                Event::Note,
                if ours {
                    "asks: the lock is its own"
                } else {
                    "asks: the lock is gone"
                },
            )
            .await?;
        Ok(ours)
    }

    async fn write(&self, seen: Seen) -> Result<bool> {
        match self.shelf.sell("seller", seen).await? {
            Sale::Sold { .. } => self.sold().await,
            Sale::SoldOut => self.refused("sold out").await,
            Sale::Superseded => self.refused("the row refuses: superseded").await,
        }
    }

    async fn sell_in_service(&mut self) -> Result<bool> {
        let left = self.lock.stock().await?;
        self.host.notes(Event::Note, "reads the stock").await?;
        if left == 0 {
            return self.refused("sold out").await;
        }
        self.host.point(DECIDED).await?;
        match self.lock.set_stock(left - 1).await? {
            true => self.sold().await,
            false => {
                self.refused("the service refuses: the lock's key is gone")
                    .await
            }
        }
    }

    async fn sold(&self) -> Result<bool> {
        self.host.notes(Event::Sale, "sells the last unit").await?;
        Ok(true)
    }

    async fn refused(&self, why: &str) -> Result<bool> {
        self.host.notes(Event::Refused, why).await?;
        Ok(false)
    }
}

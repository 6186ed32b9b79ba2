//! Two sellers in separate processes, under a lock of a coordination service. The first is stopped
//! for longer than its lease or session, and resumes after the second has sold.

use std::time::Duration;

use anyhow::Result;
use lock::FencingToken;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    coordination::Coordination,
    etcd_lock::EtcdLock,
    last_unit::{Sale, Seen, Shelf},
    zookeeper_recipe::ZooKeeperRecipe,
};
use crate::{
    actor::{Actor, Host, Role},
    measurements::{Measure, Measurements},
    test_env::TestEnv,
    timeline::{Doing, Event},
};

/// Point at which a seller has decided and not written.
const DECIDED: &str = "after the stock was read";

/// Arguments of a seller.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    pub service: Service,
    /// Address of the database with the item's row.
    pub database: String,
    pub check: Check,
    /// Lease or session timeout in seconds of scenario time.
    pub lease: f64,
}

/// Service that keeps the lock.
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
    /// The seller asks the service whether it still holds the lock, and then writes.
    Ownership,
    /// The row is claimed with the token, and written with token and version.
    Row,
    /// The stock is in the service itself, which writes only if the lock's key still exists.
    Service,
}

/// Result of a seller.
#[derive(Debug, Serialize, Deserialize)]
struct Totals {
    sold: bool,
}

/// Runs two sellers of one unit. The first is stopped after its decision.
pub(super) async fn run(env: &TestEnv, task: Task) -> Result<Measurements> {
    let shelf = Shelf::create(&task.database).await?;
    env.timeline.stock(1);
    let mut first = Actor::start(env, "seller A", Role::LeaseHolder, &task).await?;
    first.until(DECIDED).await?;
    let mut second = Actor::start(env, "seller B", Role::LeaseHolder, &task).await?;
    let stopped = first.pause().await?;
    // The second seller gets here only after the service has ended the lock of the first.
    second.until(DECIDED).await?;
    let successor: Totals = second.finish().await?;
    env.timeline.stock(if successor.sold { 0 } else { 1 });
    first.resume(stopped).await?;
    let zombie: Totals = first.finish().await?;
    if zombie.sold {
        first.lane().notes(Event::Harm, "sells the unit again");
    }
    let reported = u64::from(successor.sold) + u64::from(zombie.sold);
    anyhow::ensure!(
        task.check == Check::Service || reported == shelf.orders().await?,
        "the sellers reported {reported} sales, which differs from the number of orders"
    );
    let measurements = Measurements::of(&env.timeline)
        .sold(1, reported)
        .judge_oversold()
        .judge(Measure::ZombieWrites, u64::from(zombie.sold), 0);
    super::last_unit::require_broken_lock(measurements)
}

/// Runs a seller.
pub(crate) async fn serve(host: &Host, task: Task) -> Result<Value> {
    let shelf = Shelf::open(&task.database).await?;
    let mut seller = Seller {
        host,
        shelf,
        lock: connect(&task.service).await?,
        check: task.check,
    };
    let waiting = host.begins(Doing::Waiting, "waits for the lock").await?;
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
    Ok(serde_json::to_value(Totals { sold })?)
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
    /// Reads and decides, may be stopped, and writes.
    async fn sell(&mut self, token: i64) -> Result<bool> {
        if self.check == Check::Service {
            return self.sell_in_service().await;
        }
        let token = FencingToken::new(token).filter(|_| self.check == Check::Row);
        let Some(seen) = self.shelf.read(token).await? else {
            return self.refused("the row has seen a later token").await;
        };
        self.host.notes(Event::Note, "reads the stock").await?;
        if self.check == Check::Ownership && !self.check_ownership().await? {
            return self.refused("the lock is lost").await;
        }
        self.host.point(DECIDED).await?;
        self.write(seen).await
    }

    async fn check_ownership(&mut self) -> Result<bool> {
        let ours = self.lock.is_ours().await?;
        self.host
            .notes(
                Event::Note,
                if ours {
                    "checks: holds the lock"
                } else {
                    "checks: the lock is lost"
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

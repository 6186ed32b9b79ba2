//! The roles of actors. The code of each role is in the module of its case.

use anyhow::Result;
use clap::ValueEnum;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::host;
use crate::{actor::Host, cases};

/// Role of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Identity service of the case `maotai`.
    IdentityService,
    /// Order service of the case `maotai`.
    OrderService,
    /// Till that sells a unit under a lock.
    Till,
    /// Stock-keeper that changes a row under a lock and presents its token.
    Keeper,
    /// Order service that tries one segment after the other.
    SegmentedOrderService,
    /// Order service that decrements a counter.
    CountingOrderService,
    /// Recorder that carries orders from Redis to SQL.
    Recorder,
    /// Nightly job that must not run twice.
    SettlementJob,
    /// Seller of the cases `zookeeper-session` and `etcd-lease`.
    LeaseHolder,
}

impl Role {
    /// Returns its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::IdentityService => "identity-service",
            Self::OrderService => "order-service",
            Self::Till => "till",
            Self::Keeper => "keeper",
            Self::SegmentedOrderService => "segmented-order-service",
            Self::CountingOrderService => "counting-order-service",
            Self::Recorder => "recorder",
            Self::SettlementJob => "settlement-job",
            Self::LeaseHolder => "lease-holder",
        }
    }
}

impl AsRef<str> for Role {
    fn as_ref(&self) -> &str {
        self.name()
    }
}

/// Runs this role until it ends. `port` is the port on which the runner listens.
pub async fn act(role: Role, port: u16) -> Result<()> {
    let (host, arguments) = Host::connect(port).await?;
    let done = match role {
        Role::IdentityService => {
            cases::maotai::identity::serve(&host, host::arguments(&arguments)?).await
        }
        Role::OrderService => {
            cases::maotai::order_service::serve(&host, host::arguments(&arguments)?).await
        }
        Role::Till => cases::till::serve(&host, host::arguments(&arguments)?).await,
        Role::Keeper => cases::keeper::serve(&host, host::arguments(&arguments)?).await,
        Role::SegmentedOrderService => {
            cases::retry_double_take::order_service::serve(&host, host::arguments(&arguments)?)
                .await
        }
        Role::CountingOrderService => {
            cases::negative_counter::order_service::serve(&host, host::arguments(&arguments)?).await
        }
        Role::Recorder => {
            cases::blind_repair::recorder::serve(&host, host::arguments(&arguments)?).await
        }
        Role::SettlementJob => {
            cases::db_lock_forever::job::run(&host, host::arguments(&arguments)?).await
        }
        Role::LeaseHolder => cases::holder::serve(&host, host::arguments(&arguments)?).await,
    };
    host.report(done).await
}

/// Runs an actor of another crate: connects to the runner on `port`, passes the task that the
/// runner sends to `run`, and reports the result.
pub async fn act_as<T: DeserializeOwned>(
    port: u16,
    run: impl AsyncFnOnce(&Host, T) -> Result<Value>,
) -> Result<()> {
    let (host, task) = Host::connect(port).await?;
    let done = run(&host, host::arguments(&task)?).await;
    host.report(done).await
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::Role;

    #[test]
    fn every_role_is_found_by_its_name() {
        for role in Role::value_variants() {
            assert_eq!(Role::from_str(role.name(), false), Ok(*role));
        }
    }
}

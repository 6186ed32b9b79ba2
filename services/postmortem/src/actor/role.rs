//! What actors can be. Each role lives with the case that it belongs to.

use anyhow::Result;
use clap::ValueEnum;

use super::{Said, host};
use crate::{actor::Host, cases, matrix};

/// What an actor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// The identity service of the Maotai case.
    IdentityService,
    /// An order service of the Maotai case.
    OrderService,
    /// A till that sells a unit under a lock.
    Till,
    /// A stock-keeper that changes a row under a lock and shows its token.
    Keeper,
    /// An order service that asks one segment after the other.
    SegmentedOrderService,
    /// An order service that counts down.
    CountingOrderService,
    /// What carries orders from Redis to SQL.
    Recorder,
    /// A nightly job that must not run twice.
    SettlementJob,
    /// A seller of the ZooKeeper and etcd cases.
    LeaseHolder,
    /// Somebody who wants the lock of a trial of the lock matrix.
    Contender,
}

impl Role {
    /// Its name on the command line.
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
            Self::Contender => "contender",
        }
    }
}

/// Is this actor until it is done. `port` is where the play listens.
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
        Role::Contender => matrix::contender::serve(&host, host::arguments(&arguments)?).await,
    };
    match done {
        Ok(result) => host.say(&Said::Done(result)).await,
        Err(error) => host.say(&Said::Failed(format!("{error:#}"))).await,
    }
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

//! What actors can be. Each role lives with the case that it belongs to.

use anyhow::Result;
use clap::ValueEnum;

use super::{Said, host};
use crate::{actor::Host, cases};

/// What an actor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// The identity service of the Maotai case.
    IdentityService,
    /// An order service of the Maotai case.
    OrderService,
    /// A seller of the ZooKeeper and etcd cases.
    LeaseHolder,
}

impl Role {
    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::IdentityService => "identity-service",
            Self::OrderService => "order-service",
            Self::LeaseHolder => "lease-holder",
        }
    }
}

/// Is this actor until it is done. `port` is where the play listens.
pub async fn act(role: Role, port: u16) -> Result<()> {
    let (host, arguments) = Host::connect(port).await?;
    let done = match role {
        Role::IdentityService => cases::maotai::identity::serve(&host, host::arguments(&arguments)?).await,
        Role::OrderService => cases::maotai::order_service::serve(&host, host::arguments(&arguments)?).await,
        Role::LeaseHolder => cases::holder::serve(&host, host::arguments(&arguments)?).await,
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

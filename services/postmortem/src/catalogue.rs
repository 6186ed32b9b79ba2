//! All cases, in the order in which they are told.

use crate::{case::Case, cases};

/// All of them.
pub fn all() -> Vec<Box<dyn Case>> {
    vec![
        Box::new(cases::maotai::Maotai),
        Box::new(cases::failover::Failover),
        Box::new(cases::split_brain::SplitBrain),
        Box::new(cases::redlock_restart::RedlockRestart),
        Box::new(cases::redlock_clock::RedlockClock),
        Box::new(cases::redlock_tie::RedlockTie),
        Box::new(cases::zookeeper_session::ZookeeperSession),
        Box::new(cases::etcd_lease::EtcdLease),
        Box::new(cases::herd::Herd),
    ]
}

/// The one of this name.
pub fn find(name: &str) -> Option<Box<dyn Case>> {
    all().into_iter().find(|case| case.name() == name)
}

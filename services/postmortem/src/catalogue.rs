//! All cases, in the order in which they are told.

use crate::{case::Case, cases};

/// All of them.
pub fn all() -> Vec<Box<dyn Case>> {
    vec![
        Box::new(cases::maotai::Maotai),
        Box::new(cases::immortal_lock::ImmortalLock),
        Box::new(cases::wrong_release::WrongRelease),
        Box::new(cases::short_lease::ShortLease),
        Box::new(cases::pause::Pause),
        Box::new(cases::in_order_tokens::InOrderTokens),
        Box::new(cases::failover::Failover),
        Box::new(cases::split_brain::SplitBrain),
        Box::new(cases::redlock_restart::RedlockRestart),
        Box::new(cases::redlock_clock::RedlockClock),
        Box::new(cases::redlock_tie::RedlockTie),
        Box::new(cases::counter_token::CounterToken),
        Box::new(cases::zookeeper_session::ZookeeperSession),
        Box::new(cases::etcd_lease::EtcdLease),
        Box::new(cases::herd::Herd),
        Box::new(cases::db_lock_forever::DbLockForever),
        Box::new(cases::db_lock_pool::DbLockPool),
        Box::new(cases::retry_double_take::RetryDoubleTake),
        Box::new(cases::blind_repair::BlindRepair),
        Box::new(cases::negative_counter::NegativeCounter),
        Box::new(cases::sticky_sold_out::StickySoldOut),
        Box::new(cases::late_payment::LatePayment),
        Box::new(cases::release_after_timeout::ReleaseAfterTimeout),
    ]
}

/// The one of this name.
pub fn find(name: &str) -> Option<Box<dyn Case>> {
    all().into_iter().find(|case| case.name() == name)
}

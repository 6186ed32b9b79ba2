//! All cases, in the order of the report.

use crate::{case::Case, cases};

/// Returns all cases.
pub fn all() -> Vec<Case> {
    vec![
        cases::maotai::case(),
        cases::immortal_lock::case(),
        cases::wrong_release::case(),
        cases::short_lease::case(),
        cases::pause::case(),
        cases::in_order_tokens::case(),
        cases::failover::case(),
        cases::split_brain::case(),
        cases::redlock_restart::case(),
        cases::redlock_clock::case(),
        cases::redlock_tie::case(),
        cases::counter_token::case(),
        cases::zookeeper_session::case(),
        cases::etcd_lease::case(),
        cases::herd::case(),
        cases::db_lock_forever::case(),
        cases::db_lock_pool::case(),
        cases::retry_double_take::case(),
        cases::blind_repair::case(),
        cases::negative_counter::case(),
        cases::sticky_sold_out::case(),
        cases::late_payment::case(),
        cases::release_after_timeout::case(),
        cases::real_shop::case(),
    ]
}

/// Returns the case of this name.
pub fn find(name: &str) -> Option<Case> {
    all().into_iter().find(|case| case.name == name)
}

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
        Box::new(cases::counter_token::CounterToken),
    ]
}

/// The one of this name.
pub fn find(name: &str) -> Option<Box<dyn Case>> {
    all().into_iter().find(|case| case.name() == name)
}

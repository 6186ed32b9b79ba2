//! Events: how long they are kept, and the webhooks that get them.

use std::time::Duration;

use events::TargetPolicy;
use publisher::PublisherSettings;

use super::{
    Settings,
    declaration::settings,
    kinds::{days, ms, number, optional, parsed},
};
use crate::http;

settings! {
    /// Webhooks, and the events that they get.
    Webhooks {
        /// whether webhooks may have loopback, private and link-local addresses, and http: `true` or
        /// `false`; order services and publishers both need it. Unset: `true` for `up`, and `false`
        /// for `serve`
        webhooks_allow_private: Option<bool>, optional(parsed("true or false"));
        /// most webhooks that can exist at a time; each has a task in a publisher
        webhooks_max: u32 = 100, number(1..=10_000);
        /// milliseconds for a receiver or a broker to answer; then the event is sent again
        webhooks_timeout_ms: Duration = 15000, ms(100..=60_000);
        /// milliseconds before an event that a receiver has not accepted is sent again; the pause
        /// doubles with each further attempt, up to an hour
        webhooks_retry_ms: Duration = 5000, ms(10..=3_600_000);
        /// milliseconds that the webhooks and sinks of a publisher that has crashed wait for another
        /// one
        publisher_lease_ms: Duration = 30000, ms(1000..=600_000);
        /// days for which [events](events.md) are kept; a publisher removes older ones, except those
        /// that an enabled webhook or a sink has not got
        events_keep_days: Duration = 30, days(1..=3650);
    }
}

impl Webhooks {
    /// Which addresses webhooks may have.
    pub fn targets(&self) -> TargetPolicy {
        TargetPolicy {
            private: self.webhooks_allow_private.unwrap_or(false),
        }
    }
}

impl Settings {
    /// How events are sent. The clock of another store is the caller's to add.
    pub fn publisher(&self) -> PublisherSettings {
        PublisherSettings {
            targets: self.webhooks.targets(),
            authority: http::authority(self.tls.as_ref()),
            request_timeout: self.webhooks.webhooks_timeout_ms,
            retry_pause: self.webhooks.webhooks_retry_ms,
            lease: self.webhooks.publisher_lease_ms,
            keep: self.webhooks.events_keep_days,
            sinks: self.sinks.clone(),
            ..PublisherSettings::default()
        }
    }
}

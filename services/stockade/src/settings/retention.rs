//! How long items that have ended stay.

use std::{path::PathBuf, time::Duration};

use order::EngineSettings;
use reconciler::ReconcilerSettings;

use super::{
    Settings,
    declaration::settings,
    kinds::{duration, optional, path},
};

settings! {
    /// How long items that have ended stay.
    Retention {
        /// how long after its end a closed item is [archived](operations.md#after-the-sale) by
        /// itself, such as `30d` (units: `s`, `m`, `h`, `d`). Unset: never
        archive_after: Option<Duration>, optional(duration());
        /// how long after its archive an item keeps its orders at least, before
        /// `DELETE /v1/items/{item}` may [drop](operations.md#dropping-old-sales) it
        drop_retention: Duration = "30d", duration();
        /// how long after its archive an item is [dropped](operations.md#dropping-old-sales) by
        /// itself, such as `90d`. Unset: never
        drop_after: Option<Duration>, optional(duration());
        /// folder for the exports of dropped items, on a disk that lasts. Order services write nothing
        /// there, but refuse `DELETE /v1/items/{item}` unless it is set for them, too. Unset: the
        /// reconcilers of `serve` drop nothing; `up` and `items drop` write into the folder `exports`
        /// of `--dir`
        drop_exports: Option<PathBuf>, optional(path());
    }
}

impl Settings {
    /// How orders are placed, and which items may be dropped.
    pub fn engine(&self) -> EngineSettings {
        EngineSettings {
            order_timeout: self.service.order_timeout_ms,
            drop_retention: self.retention.drop_retention,
            has_drop_exports: self.retention.drop_exports.is_some(),
        }
    }

    /// How items are looked after. The log of their locks is the caller's to add.
    pub fn reconciler(&self) -> ReconcilerSettings {
        ReconcilerSettings {
            close_delay: self.service.order_timeout_ms,
            audit_interval: self.audits.audit_interval_ms,
            audit_walked: self.audits.audit_walked_max,
            archive_after: self.retention.archive_after,
            drop_after: self.retention.drop_after,
            drop_exports: self.retention.drop_exports.clone(),
            ..ReconcilerSettings::default()
        }
    }
}

//! Every setting. They are read once, at the start. A group of them is a file here and a section of
//! `docs/settings.md`; [`declaration`] says how one is declared.

mod access;
mod admins;
mod audits;
mod connections;
mod database;
mod declaration;
mod duration;
mod kinds;
mod layers;
mod lock;
mod log;
#[cfg(test)]
mod page;
mod rates;
mod retention;
mod service;
mod sinks;
mod stock;
mod tls;
mod webhooks;

use std::sync::LazyLock;

use ::stock::TlsCertificates;
use anyhow::Result;
use order::{Admin, RateLimits};
use publisher::SinkSettings;

use self::{
    access::Access, audits::Audits, connections::Connections, database::Database,
    declaration::Setting, retention::Retention, stock::Stock, webhooks::Webhooks,
};

pub use self::{
    layers::{Layers, RUN_FILE, add_flags, parse_urls},
    lock::Lock,
    log::Log,
    service::Service,
    tls::read as tls,
};

/// The settings of a group.
type Declared = fn() -> Vec<Setting>;

/// The sections of the settings page, each with its group.
const GROUPS: [(&str, Declared); 13] = [
    ("Stock", Stock::declared),
    ("Ledger", Database::declared),
    ("Lock", Lock::declared),
    ("Encryption", tls::Tls::declared),
    ("Secrets", Access::declared),
    ("Service", Service::declared),
    ("Connections", Connections::declared),
    ("Rates", rates::Rates::declared),
    ("Events", Webhooks::declared),
    ("Sinks", sinks::Sinks::declared),
    ("Audits", Audits::declared),
    ("Old sales", Retention::declared),
    ("Log", Log::declared),
];

/// The settings of all groups.
static SETTINGS: LazyLock<Vec<Setting>> =
    LazyLock::new(|| GROUPS.iter().flat_map(|(_, group)| group()).collect());

/// The effective settings.
#[derive(Clone)]
pub struct Settings {
    pub stock: Stock,
    pub database: Database,
    pub lock: Lock,
    pub tls: Option<TlsCertificates>,
    pub access: Access,
    pub admins: Vec<Admin>,
    pub service: Service,
    /// Whether the address was set, rather than left at its default.
    pub listen_is_set: bool,
    pub connections: Connections,
    pub rates: RateLimits,
    pub webhooks: Webhooks,
    /// Brokers that get every event.
    pub sinks: Vec<SinkSettings>,
    pub audits: Audits,
    pub retention: Retention,
    pub log: Log,
    /// Whether this is `up`, which plays the shop as well.
    pub is_trial: bool,
    /// The stores that the user configured, without those of an earlier `up`.
    pub own_urls: OwnUrls,
}

/// Stores that are not private to `up`.
#[derive(Debug, Clone, Default)]
pub struct OwnUrls {
    pub redis_url: Option<String>,
    pub lock_urls: Vec<String>,
    pub database_url: Option<String>,
}

impl Settings {
    /// Reads every setting from the layers. Fails on the first invalid one.
    pub fn from_layers(layers: &Layers) -> Result<Self> {
        let (stock, lock) = (Stock::read(layers)?, Lock::read(layers)?);
        let (database, tls) = (Database::read(layers)?, tls::read(layers)?);
        let (access, webhooks) = (Access::read(layers)?, Webhooks::read(layers)?);
        let admins = access
            .admins_file
            .as_deref()
            .map(admins::read)
            .transpose()?;
        let keep = webhooks.events_keep_days;
        Ok(Self {
            own_urls: OwnUrls::of(layers, &stock, &lock, &database),
            sinks: sinks::read(layers, tls.as_ref(), keep)?,
            stock,
            database,
            lock,
            tls,
            access,
            admins: admins.unwrap_or_default(),
            service: Service::read(layers)?,
            listen_is_set: layers.unless_default("listen").is_some(),
            connections: Connections::read(layers)?,
            rates: rates::read(layers)?,
            webhooks,
            audits: Audits::read(layers)?,
            retention: Retention::read(layers)?,
            log: Log::read(layers)?,
            is_trial: false,
        })
    }

    /// Whether the sale page is served: its shop signs buyers' tokens with a secret.
    pub fn has_sale_page(&self) -> bool {
        self.is_trial
            && self.own_urls.redis_url.is_none()
            && self.own_urls.database_url.is_none()
            && self.service.roles.order
            && self.access.jwt_public_key.is_none()
            && self.access.jwks.is_none()
            && self.access.jwt_secret.is_some()
    }
}

impl OwnUrls {
    fn of(layers: &Layers, stock: &Stock, lock: &Lock, database: &Database) -> Self {
        let own = |key: &str| !layers.is_from_run_file(key);
        let redis_url = stock.redis_url.clone();
        let lock_urls = lock.lock_urls.iter();
        let database_url = database.database_url.clone();
        Self {
            redis_url: redis_url.filter(|_| own("redis_url")),
            lock_urls: lock_urls.filter(|_| own("lock_urls")).cloned().collect(),
            database_url: database_url.filter(|_| own("database_url")),
        }
    }
}

/// The settings of a command line with these flags.
#[cfg(test)]
pub fn with_flags(dir: &std::path::Path, flags: &[&str]) -> Settings {
    use clap::Command;

    let command = Command::new("stockade").subcommand(Command::new("lock"));
    let matches = add_flags(command).get_matches_from([&["stockade"], flags].concat());
    Settings::from_layers(&Layers::read(dir, &matches).unwrap()).unwrap()
}

#[cfg(test)]
mod tests {
    use ::stock::StockSettings;
    use ledger::StatementLimits;
    use order::Limits;
    use publisher::PublisherSettings;
    use reconciler::ReconcilerSettings;
    use recorder::RecorderSettings;

    use super::{Settings, with_flags};

    fn defaults() -> Settings {
        with_flags(tempfile::tempdir().unwrap().path(), &[])
    }

    /// Tests of a service use its defaults, which must be those of the product.
    #[test]
    fn the_defaults_of_the_order_service_are_those_of_its_settings() {
        let (settings, own) = (defaults(), Limits::default());
        let limits = Limits {
            // Tests always use threads for connections, if the machine has several.
            threads: own.threads,
            // That of orders raises it.
            request_timeout: settings.service.request_timeout_ms,
            ..settings.limits()
        };
        assert_eq!(format!("{limits:?}"), format!("{own:?}"));
        let (engine, own) = (settings.engine(), order::EngineSettings::default());
        assert_eq!(engine.order_timeout, own.order_timeout);
        assert_eq!(engine.drop_retention, own.drop_retention);
        assert_eq!(
            settings.access.token_policy(),
            order::TokenPolicy::default()
        );
    }

    #[test]
    fn the_defaults_of_the_stores_are_those_of_their_settings() {
        let url = "redis://127.0.0.1:1";
        let mut settings = defaults();
        settings.stock.redis_url = Some(url.to_owned());
        let (stock, own) = (settings.stock().unwrap(), StockSettings::new(url));
        assert_eq!(format!("{stock:?}"), format!("{own:?}"));
        let limits = settings.database.pool(1).limits;
        assert_eq!(limits, StatementLimits::default());
    }

    #[test]
    fn the_defaults_of_the_other_roles_are_those_of_their_settings() {
        let settings = defaults();
        let (recorder, own) = (settings.service.recorder(), RecorderSettings::default());
        assert_eq!(recorder.workers, own.workers);
        let (reconciler, own) = (settings.reconciler(), ReconcilerSettings::default());
        assert_eq!(reconciler.close_delay, own.close_delay);
        assert_eq!(reconciler.audit_interval, own.audit_interval);
        assert_eq!(reconciler.audit_walked, own.audit_walked);
        let times = |settings: PublisherSettings| {
            let pause = settings.retry_pause;
            (
                settings.lease,
                settings.request_timeout,
                pause,
                settings.keep,
            )
        };
        assert_eq!(
            times(settings.publisher()),
            times(PublisherSettings::default())
        );
    }
}

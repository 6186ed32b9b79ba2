//! Every setting, with its variable, flag, default and expected values. They are read once, at the
//! start.

mod admins;
mod database;
mod duration;
mod layers;
mod rates;
mod sinks;
mod table;
mod tls;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use ledger::StatementLimits;
use order::{Admin, RateLimits, TokenPolicy};
use stock::TlsCertificates;

use crate::{
    http,
    key_set::{KeySet, KeySetSource},
    lock::backends,
    log::LogFormat,
};

pub use layers::{Layers, RUN_FILE, add_flags, parse_urls};
pub use tls::read as tls;

/// One server, a cluster, or sentinels, each without and with TLS.
const REDIS_SCHEMES: [&str; 6] = [
    "redis",
    "rediss",
    "redis+cluster",
    "rediss+cluster",
    "redis+sentinel",
    "rediss+sentinel",
];

/// The effective settings.
#[derive(Clone)]
pub struct Settings {
    pub redis_url: Option<String>,
    pub tls: Option<TlsCertificates>,
    pub lock: Option<&'static str>,
    pub lock_urls: Vec<String>,
    pub lock_lease: Duration,
    pub database_url: Option<String>,
    pub database_connections: u32,
    pub database_limits: StatementLimits,
    /// Whether `serve` updates the schema.
    pub migrate: bool,
    pub listen: SocketAddr,
    /// Whether `listen` was set, rather than left at its default.
    pub listen_is_set: bool,
    /// Where the operators' pages have a listener of their own.
    pub operators_listen: Option<SocketAddr>,
    /// Whether they are served at `listen`. `None`: not set. `up` sets it, and `serve` does not
    /// serve them there.
    pub operators_at_listen: Option<bool>,
    /// Whether the console is served.
    pub console: bool,
    /// Whether this is `up`, which plays the shop as well.
    pub is_trial: bool,
    pub roles: Roles,
    pub jwt_secret: Option<String>,
    pub jwt_secret_previous: Option<String>,
    pub token_policy: TokenPolicy,
    pub jwt_public_key: Option<PathBuf>,
    pub jwks: Option<KeySetSource>,
    pub admin_token: Option<String>,
    pub admins: Vec<Admin>,
    pub payment_secret: Option<String>,
    pub stripe_secret: Option<String>,
    pub stripe_secret_previous: Option<String>,
    pub payment_window: Duration,
    pub order_timeout: Duration,
    pub request_timeout: Duration,
    pub drain_delay: Duration,
    pub drain_timeout: Duration,
    pub head_timeout: Duration,
    pub idle_timeout: Duration,
    pub write_timeout: Duration,
    pub write_rate_min: u64,
    pub body_timeout: Duration,
    pub body_rate_min: u64,
    pub http_threads: usize,
    pub connections_max: Option<usize>,
    pub connections_per_peer_max: Option<usize>,
    pub bodies_per_peer_max: usize,
    pub rates: RateLimits,
    pub body_bytes_max: usize,
    pub head_bytes_max: usize,
    pub headers_max: usize,
    pub redis_connect_timeout: Duration,
    pub redis_timeout: Duration,
    pub batch_max: usize,
    pub sold_out_cache_ttl: Duration,
    pub replicas: u16,
    pub replicas_timeout: Duration,
    pub recorder_workers: usize,
    /// `None`: not set. `up` allows them then, and `serve` does not.
    pub webhooks_allow_private: Option<bool>,
    pub webhooks_max: u32,
    pub webhooks_timeout: Duration,
    pub webhooks_retry: Duration,
    pub publisher_lease: Duration,
    /// The origins whose pages may call the API.
    pub cors_origins: order::CorsOrigins,
    pub events_keep: Duration,
    /// Brokers that get every event.
    pub event_sinks: Vec<publisher::SinkSettings>,
    pub archive_after: Option<Duration>,
    pub drop_retention: Duration,
    pub drop_after: Option<Duration>,
    pub drop_exports: Option<PathBuf>,
    pub log: String,
    pub log_format: LogFormat,
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

/// The roles that this process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    pub order: bool,
    pub recorder: bool,
    pub reconciler: bool,
    pub publisher: bool,
}

impl std::fmt::Display for Roles {
    /// As STOCKADE_ROLES has them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let roles = [
            (self.order, "order"),
            (self.recorder, "recorder"),
            (self.reconciler, "reconciler"),
            (self.publisher, "publisher"),
        ];
        let roles = roles.iter().filter(|(has, _)| *has).map(|(_, role)| *role);
        f.write_str(&roles.collect::<Vec<_>>().join(","))
    }
}

impl Settings {
    /// Reads every setting from the layers. Fails on the first invalid one.
    pub fn from_layers(layers: &Layers) -> Result<Self> {
        let ms = |key: &str, range| layers.number(key, range).map(Duration::from_millis);
        let size = |key: &str, range| {
            layers
                .number(key, range)
                .map(|number| usize::try_from(number).unwrap_or(usize::MAX))
        };
        let size_if_set = |key: &str, range| {
            let text = layers.text(key);
            text.map(|_| size(key, range)).transpose()
        };
        let redis_url = layers.url("redis_url", &REDIS_SCHEMES)?;
        let lock = lock_backend(layers)?;
        // Servers of an earlier `up` belong to the default backend, whichever backend is set now.
        let of = lock
            .filter(|_| !layers.is_from_run_file("lock_urls"))
            .unwrap_or(backends::DEFAULT);
        let lock_urls = layers.urls("lock_urls", backends::schemes(of))?;
        let database_url = layers.url("database_url", &["postgres", "postgresql", "sqlite"])?;
        if database_url.as_ref().is_some_and(|url| {
            url.starts_with("sqlite:")
                && (!url.starts_with("sqlite://") || url.contains(":memory:"))
        }) {
            return Err(
                layers.wrong("database_url", "a file, as in sqlite://PATH: each connection to a ledger in memory would open another ledger")
            );
        }
        if let Some(url) = &database_url {
            database::check_encryption(url, layers)?;
        }
        let tls = tls::read(layers)?;
        let events_keep = layers
            .number("events_keep_days", 1..=3650)
            .map(|days| Duration::from_secs(days * 86_400))?;
        let own = |key: &str| !layers.is_from_run_file(key);
        Ok(Self {
            own_urls: OwnUrls {
                redis_url: redis_url.clone().filter(|_| own("redis_url")),
                lock_urls: lock_urls
                    .iter()
                    .filter(|_| own("lock_urls"))
                    .cloned()
                    .collect(),
                database_url: database_url.clone().filter(|_| own("database_url")),
            },
            redis_url,
            event_sinks: sinks::read(layers, tls.as_ref(), events_keep)?,
            tls,
            lock,
            lock_urls,
            lock_lease: ms("lock_lease_ms", 500..=600_000)?,
            database_url,
            database_connections: u32::try_from(layers.number("database_connections", 1..=1000)?)?,
            database_limits: StatementLimits {
                statement: ms("database_statement_timeout_ms", 100..=3_600_000)?,
                long_statement: ms("database_long_statement_timeout_ms", 100..=86_400_000)?,
                lock: ms("database_lock_timeout_ms", 10..=3_600_000)?,
            },
            migrate: switch(layers, "migrate")?,
            listen: layers.parse("listen", "ADDRESS:PORT, such as 127.0.0.1:8080")?,
            listen_is_set: layers.unless_default("listen").is_some(),
            operators_listen: layers
                .text("operators_listen")
                .map(|_| layers.parse("operators_listen", "ADDRESS:PORT, such as 127.0.0.1:9090"))
                .transpose()?,
            operators_at_listen: operators_at_listen(layers)?,
            console: switch(layers, "console")?,
            is_trial: false,
            roles: roles(layers)?,
            jwt_secret: layers.secret("jwt_secret")?,
            jwt_secret_previous: layers.secret("jwt_secret_previous")?,
            token_policy: TokenPolicy {
                issuer: layers.text("jwt_issuer"),
                audience: layers.text("jwt_audience"),
                leeway: layers
                    .number("jwt_leeway_seconds", 0..=600)
                    .map(Duration::from_secs)?,
            },
            jwt_public_key: layers.text("jwt_public_key").map(PathBuf::from),
            jwks: layers
                .text("jwks")
                .map(|text| {
                    KeySetSource::parse(&text)
                        .ok_or_else(|| layers.wrong("jwks", KeySetSource::EXPECTED))
                })
                .transpose()?,
            admin_token: layers.secret("admin_token")?,
            admins: layers
                .text("admins_file")
                .map_or(Ok(Vec::new()), |path| admins::read(Path::new(&path)))?,
            payment_secret: layers.secret("payment_secret")?,
            stripe_secret: layers.secret("stripe_secret")?,
            stripe_secret_previous: layers.secret("stripe_secret_previous")?,
            payment_window: layers
                .number("payment_window_seconds", 1..=86_400)
                .map(Duration::from_secs)?,
            order_timeout: ms("order_timeout_ms", 50..=60_000)?,
            request_timeout: ms("request_timeout_ms", 100..=120_000)?,
            drain_delay: ms("drain_delay_ms", 0..=600_000)?,
            drain_timeout: ms("drain_timeout_ms", 0..=600_000)?,
            head_timeout: ms("head_timeout_ms", 100..=600_000)?,
            idle_timeout: ms("idle_timeout_ms", 100..=86_400_000)?,
            write_timeout: ms("write_timeout_ms", 100..=600_000)?,
            write_rate_min: layers.number("write_rate_min", 0..=1_000_000_000)?,
            body_timeout: ms("body_timeout_ms", 100..=600_000)?,
            body_rate_min: layers.number("body_rate_min", 0..=1_000_000_000)?,
            http_threads: size("http_threads", 0..=1024)?,
            connections_max: size_if_set("connections_max", 8..=10_000_000)?,
            connections_per_peer_max: size_if_set("connections_per_peer_max", 1..=10_000_000)?,
            bodies_per_peer_max: size("bodies_per_peer_max", 1..=10_000_000)?,
            rates: rates::read(layers)?,
            body_bytes_max: size("body_bytes_max", 256..=16_777_216)?,
            head_bytes_max: size("head_bytes_max", 8192..=1_048_576)?,
            headers_max: size("headers_max", 8..=1024)?,
            redis_connect_timeout: ms("redis_connect_timeout_ms", 10..=60_000)?,
            redis_timeout: ms("redis_timeout_ms", 10..=60_000)?,
            batch_max: size("batch_max", 1..=2000)?,
            sold_out_cache_ttl: ms("sold_out_cache_ms", 0..=60_000)?,
            replicas: u16::try_from(layers.number("replicas", 1..=16)?)?,
            replicas_timeout: ms("replicas_timeout_ms", 1..=60_000)?,
            recorder_workers: size("recorder_workers", 1..=64)?,
            cors_origins: layers
                .text("cors_origins")
                .map(|text| {
                    text.parse()
                        .map_err(|_| layers.wrong("cors_origins", order::CorsOrigins::EXPECTED))
                })
                .transpose()?
                .unwrap_or_default(),
            webhooks_allow_private: layers
                .text("webhooks_allow_private")
                .map(|_| layers.parse("webhooks_allow_private", "true or false"))
                .transpose()?,
            webhooks_max: u32::try_from(layers.number("webhooks_max", 1..=10_000)?)?,
            webhooks_timeout: ms("webhooks_timeout_ms", 100..=60_000)?,
            webhooks_retry: ms("webhooks_retry_ms", 10..=3_600_000)?,
            publisher_lease: ms("publisher_lease_ms", 1000..=600_000)?,
            events_keep,
            archive_after: long(layers, "archive_after")?,
            drop_after: long(layers, "drop_after")?,
            drop_exports: layers.text("drop_exports").map(PathBuf::from),
            drop_retention: duration::parse(&layers.text("drop_retention").unwrap_or_default())
                .ok_or_else(|| layers.wrong("drop_retention", duration::EXPECTED))?,
            log: layers.text("log").unwrap_or_default(),
            log_format: log_format(layers)?,
        })
    }

    /// Where the operators' pages have a listener of their own, and the variable that says so. A
    /// process without the role `order` has no other pages; it uses `listen` only if that was set,
    /// because several roles on one machine would share the default address.
    pub fn operators_address(&self) -> Option<(&'static str, SocketAddr)> {
        let own = self.operators_listen;
        let only = (!self.roles.order && self.listen_is_set).then_some(self.listen);
        own.map(|address| ("STOCKADE_OPERATORS_LISTEN", address))
            .or(only.map(|address| ("STOCKADE_LISTEN", address)))
    }

    /// Whether the sale page is served: its shop signs buyers' tokens with a secret.
    pub fn has_sale_page(&self) -> bool {
        self.is_trial
            && self.own_urls.redis_url.is_none()
            && self.own_urls.database_url.is_none()
            && self.roles.order
            && self.jwt_public_key.is_none()
            && self.jwks.is_none()
            && self.jwt_secret.is_some()
    }

    /// URL of the stock's Redis.
    pub fn redis_url(&self) -> Result<&str> {
        self.redis_url.as_deref().context(
            "REDIS_URL is not set: expected redis://HOST:PORT, redis+cluster://HOST:PORT,... or redis+sentinel://HOST:PORT,.../NAME",
        )
    }

    /// URL of the ledger's database.
    pub fn database_url(&self) -> Result<&str> {
        self.database_url.as_deref().context(
            "DATABASE_URL is not set: expected postgres://USER@HOST/DATABASE or sqlite://PATH",
        )
    }

    /// The token of the admin who may do everything.
    pub fn admin_token(&self) -> Result<&str> {
        self.admin_token
            .as_deref()
            .context("STOCKADE_ADMIN_TOKEN is not set: expected a secret of 16 characters or more")
    }

    /// The secret that signs buyers' tokens.
    pub fn jwt_secret(&self) -> Result<&str> {
        self.jwt_secret
            .as_deref()
            .context("STOCKADE_JWT_SECRET is not set: expected a secret of 16 characters or more")
    }

    /// The key set that verifies buyers' tokens, if there is one.
    pub fn key_set(&self) -> Option<KeySet> {
        Some(KeySet {
            source: self.jwks.clone()?,
            authority: http::authority(self.tls.as_ref()),
        })
    }

    /// Fails if buyers' tokens are verified with a key of an identity provider, and no audience is
    /// set. Such a key signs tokens for many applications; a shared secret is the shop's own.
    pub fn check_audience(&self) -> Result<()> {
        let key = match (&self.jwks, &self.jwt_public_key) {
            (Some(_), _) => "STOCKADE_JWKS",
            (None, Some(_)) => "STOCKADE_JWT_PUBLIC_KEY",
            (None, None) => return Ok(()),
        };
        if self.roles.order && self.token_policy.audience.is_none() {
            bail!(
                "STOCKADE_JWT_AUDIENCE is not set: expected the audience (`aud`) of this shop's tokens, because the keys of {key} sign tokens for other applications, too"
            );
        }
        Ok(())
    }

    /// The key that verifies buyers' tokens.
    pub fn buyer_key(&self) -> Result<order::BuyerKey> {
        if let Some(path) = &self.jwt_public_key {
            let pem = std::fs::read(path).with_context(|| {
                format!("STOCKADE_JWT_PUBLIC_KEY: cannot read {}", path.display())
            })?;
            return Ok(order::BuyerKey::PublicKey(pem));
        }
        let secret = self.jwt_secret.as_deref();
        let secret = secret.context("neither STOCKADE_JWT_SECRET nor STOCKADE_JWT_PUBLIC_KEY nor STOCKADE_JWKS is set: expected a key that verifies buyers' tokens")?;
        Ok(order::BuyerKey::Secret(secret.into()))
    }
}

fn lock_backend(layers: &Layers) -> Result<Option<&'static str>> {
    let Some(text) = layers.text("lock") else {
        return Ok(None);
    };
    backends::find(&text)
        .map(Some)
        .map_err(|_| layers.wrong("lock", &format!("one of {}", backends::names())))
}

/// A long duration, if it is set.
fn long(layers: &Layers, key: &str) -> Result<Option<Duration>> {
    let text = layers.text(key);
    text.map(|text| duration::parse(&text).ok_or_else(|| layers.wrong(key, duration::EXPECTED)))
        .transpose()
}

fn switch(layers: &Layers, key: &str) -> Result<bool> {
    match layers.text(key).as_deref() {
        Some("on") => Ok(true),
        Some("off") => Ok(false),
        _ => Err(layers.wrong(key, "on or off")),
    }
}

/// Operators have one place: sessions of the console are known where they began.
fn operators_at_listen(layers: &Layers) -> Result<Option<bool>> {
    let key = "operators_at_listen";
    let set = layers.text(key).map(|_| switch(layers, key)).transpose()?;
    if set == Some(true) && layers.text("operators_listen").is_some() {
        return Err(layers.wrong(key, "off beside STOCKADE_OPERATORS_LISTEN"));
    }
    Ok(set)
}

/// How the lines of the log are written. Fails if it is neither of the two ways.
pub fn log_format(layers: &Layers) -> Result<LogFormat> {
    match layers.text("log_format").as_deref() {
        Some("text") => Ok(LogFormat::Text),
        Some("json") => Ok(LogFormat::Json),
        _ => Err(layers.wrong("log_format", "text or json")),
    }
}

fn roles(layers: &Layers) -> Result<Roles> {
    let text = layers.text("roles").unwrap_or_default();
    let mut roles = Roles {
        order: false,
        recorder: false,
        reconciler: false,
        publisher: false,
    };
    for role in text.split(',').map(str::trim) {
        match role {
            "order" => roles.order = true,
            "recorder" => roles.recorder = true,
            "reconciler" => roles.reconciler = true,
            "publisher" => roles.publisher = true,
            _ => {
                return Err(layers.wrong(
                    "roles",
                    "a comma-separated list of order, recorder, reconciler, publisher",
                ));
            }
        }
    }
    Ok(roles)
}

//! The settings, one line each.

/// A setting, in its three places.
pub(super) struct Setting {
    /// In a file.
    pub key: &'static str,
    /// In the environment.
    pub variable: &'static str,
    /// If nothing else says.
    pub default: Option<&'static str>,
    /// Never shown.
    pub secret: bool,
    /// What it is, with its unit.
    pub help: &'static str,
}

const fn setting(
    key: &'static str,
    variable: &'static str,
    default: &'static str,
    help: &'static str,
) -> Setting {
    Setting {
        key,
        variable,
        default: Some(default),
        secret: false,
        help,
    }
}

const fn unset(key: &'static str, variable: &'static str, help: &'static str) -> Setting {
    Setting {
        key,
        variable,
        default: None,
        secret: false,
        help,
    }
}

const fn secret(key: &'static str, variable: &'static str, help: &'static str) -> Setting {
    Setting {
        key,
        variable,
        default: None,
        secret: true,
        help,
    }
}

/// Every setting.
pub(super) const SETTINGS: &[Setting] = &[
    unset(
        "redis_url",
        "REDIS_URL",
        "Redis for the stock: redis://, redis+cluster://HOST:PORT,... or redis+sentinel://HOST:PORT,.../NAME; rediss is with TLS",
    ),
    unset(
        "lock_urls",
        "LOCK_URLS",
        "Redis servers of the lock, comma-separated",
    ),
    unset(
        "database_url",
        "DATABASE_URL",
        "the ledger: postgres:// or sqlite://",
    ),
    setting(
        "database_connections",
        "STOCKADE_DATABASE_CONNECTIONS",
        "8",
        "connections to the ledger; on PostgreSQL a recorder beside an order service has its own, one more than it has workers",
    ),
    setting(
        "listen",
        "STOCKADE_LISTEN",
        "127.0.0.1:8080",
        "where to serve HTTP; port 0 takes a free one. Without the role `order`: /metrics, /healthz and /readyz, and only if it is set",
    ),
    setting(
        "roles",
        "STOCKADE_ROLES",
        "order,recorder,reconciler",
        "what `serve` does: order, recorder, reconciler, or several",
    ),
    unset(
        "lock",
        "STOCKADE_LOCK",
        "what keeps the lock of the reconciler: redlock (default with LOCK_URLS), redis, postgres, mysql, sqlite, etcd, zookeeper, consul; without \
         LOCK_URLS the database of the ledger",
    ),
    setting(
        "lock_lease_ms",
        "STOCKADE_LOCK_LEASE_MS",
        "5000",
        "milliseconds of the reconciler's lease; it is extended while it works",
    ),
    secret(
        "jwt_secret",
        "STOCKADE_JWT_SECRET",
        "secret that buyers' tokens are signed with (HS256)",
    ),
    unset(
        "jwt_public_key",
        "STOCKADE_JWT_PUBLIC_KEY",
        "PEM file with the public key that buyers' tokens are checked with, instead of a secret",
    ),
    secret(
        "admin_token",
        "STOCKADE_ADMIN_TOKEN",
        "secret that admins present",
    ),
    secret(
        "payment_secret",
        "STOCKADE_PAYMENT_SECRET",
        "secret that the payment provider's messages are signed with (HMAC-SHA256)",
    ),
    setting(
        "payment_window_seconds",
        "STOCKADE_PAYMENT_WINDOW_SECONDS",
        "300",
        "seconds that the time of a payment provider's message may be away from ours",
    ),
    setting(
        "order_timeout_ms",
        "STOCKADE_ORDER_TIMEOUT_MS",
        "5000",
        "milliseconds after which the outcome of an order is answered as unknown",
    ),
    setting(
        "request_timeout_ms",
        "STOCKADE_REQUEST_TIMEOUT_MS",
        "10000",
        "milliseconds that a request may take",
    ),
    setting(
        "drain_timeout_ms",
        "STOCKADE_DRAIN_TIMEOUT_MS",
        "10000",
        "milliseconds that requests under way get when the service ends",
    ),
    setting(
        "head_timeout_ms",
        "STOCKADE_HEAD_TIMEOUT_MS",
        "30000",
        "milliseconds that the head of a request may take to arrive",
    ),
    setting(
        "body_bytes_max",
        "STOCKADE_BODY_BYTES_MAX",
        "16384",
        "largest body, in bytes",
    ),
    setting(
        "head_bytes_max",
        "STOCKADE_HEAD_BYTES_MAX",
        "16384",
        "largest head of a request, in bytes",
    ),
    setting(
        "headers_max",
        "STOCKADE_HEADERS_MAX",
        "64",
        "most headers of a request",
    ),
    setting(
        "redis_connect_timeout_ms",
        "STOCKADE_REDIS_CONNECT_TIMEOUT_MS",
        "1000",
        "milliseconds that connecting to Redis may take",
    ),
    setting(
        "redis_timeout_ms",
        "STOCKADE_REDIS_TIMEOUT_MS",
        "500",
        "milliseconds after which a reply of Redis is asked for again",
    ),
    setting(
        "batch_max",
        "STOCKADE_BATCH_MAX",
        "256",
        "most orders in a batch",
    ),
    setting(
        "hint_lifetime_ms",
        "STOCKADE_HINT_LIFETIME_MS",
        "100",
        "milliseconds for which an item may be called sold out without a look",
    ),
    setting(
        "replicas",
        "STOCKADE_REPLICAS",
        "1",
        "replicas that must have an order of a `replicated` item before it is acknowledged",
    ),
    setting(
        "replicas_timeout_ms",
        "STOCKADE_REPLICAS_TIMEOUT_MS",
        "100",
        "milliseconds that replicas get to confirm before an order is asked for again",
    ),
    setting(
        "recorder_workers",
        "STOCKADE_RECORDER_WORKERS",
        "2",
        "recording transactions at once",
    ),
    setting(
        "log",
        "STOCKADE_LOG",
        "info,sqlx::postgres::notice=warn",
        "what to log, such as `info` or `stock=debug,info`",
    ),
];

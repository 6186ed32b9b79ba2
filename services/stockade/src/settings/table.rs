//! The settings, one line each.

/// A setting, with its names in the three places that can set it.
pub(super) struct Setting {
    /// Key in a file.
    pub key: &'static str,
    /// Environment variable.
    pub variable: &'static str,
    /// Default value, if it has one.
    pub default: Option<&'static str>,
    /// Whether the value is hidden in output.
    pub secret: bool,
    /// Description, with its unit.
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
        "Redis for the stock: redis://HOST:PORT, redis+cluster://HOST:PORT,... or redis+sentinel://HOST:PORT,.../NAME; rediss for TLS",
    ),
    unset(
        "lock_urls",
        "LOCK_URLS",
        "independent Redis servers of the lock, comma-separated, such as redis://HOST:PORT,...; append ?durable=true to the URL of a server that flushes every \
         write (appendonly yes, appendfsync always), so that it votes immediately after a restart",
    ),
    unset(
        "database_url",
        "DATABASE_URL",
        "database of the ledger: postgres://USER@HOST/DATABASE or sqlite://PATH",
    ),
    setting(
        "database_connections",
        "STOCKADE_DATABASE_CONNECTIONS",
        "8",
        "connections to the ledger; on PostgreSQL, a recorder in the same process as an order service opens its own, one more than its workers",
    ),
    setting(
        "database_statement_timeout_ms",
        "STOCKADE_DATABASE_STATEMENT_TIMEOUT_MS",
        "30000",
        "milliseconds that a statement of PostgreSQL may take: a step of an order, a recorded batch, a look-up",
    ),
    setting(
        "database_long_statement_timeout_ms",
        "STOCKADE_DATABASE_LONG_STATEMENT_TIMEOUT_MS",
        "600000",
        "the same for lists, exports, drops, erasures and each piece of a full audit, which read many rows",
    ),
    setting(
        "database_lock_timeout_ms",
        "STOCKADE_DATABASE_LOCK_TIMEOUT_MS",
        "5000",
        "milliseconds that a statement waits for a lock of the ledger: for a row or a table of PostgreSQL, or for the write of another process to the file of SQLite",
    ),
    setting(
        "migrate",
        "STOCKADE_MIGRATE",
        "off",
        "`on` or `off`: whether `serve` updates the ledger's schema when it starts, as `stockade migrate` does",
    ),
    setting(
        "listen",
        "STOCKADE_LISTEN",
        "127.0.0.1:8080",
        "address of the HTTP service; port 0 selects a free port. A process without the role `order` serves /metrics, /healthz and /readyz, and only if this is set",
    ),
    unset(
        "operators_listen",
        "STOCKADE_OPERATORS_LISTEN",
        "address for operators: /metrics, /docs, /openapi.json and the console are served there. Unset: a process with the role `order` serves them nowhere, unless STOCKADE_OPERATORS_AT_LISTEN is `on`",
    ),
    unset(
        "operators_at_listen",
        "STOCKADE_OPERATORS_AT_LISTEN",
        "`on` or `off`: whether a process with the role `order` serves the operators' pages at STOCKADE_LISTEN, where buyers reach them; not with STOCKADE_OPERATORS_LISTEN. Unset: `on` for `up` at a loopback address, else `off`",
    ),
    setting(
        "console",
        "STOCKADE_CONSOLE",
        "on",
        "`on` or `off`: whether a process with the role `order` serves the console, where it serves the other pages of operators",
    ),
    setting(
        "roles",
        "STOCKADE_ROLES",
        "order,recorder,reconciler,publisher",
        "roles of this process, comma-separated: order, recorder, reconciler, publisher",
    ),
    unset(
        "lock",
        "STOCKADE_LOCK",
        "backend of the reconciler's lock: redlock, redis, postgres, mysql, sqlite, etcd, zookeeper or consul; by default redlock with LOCK_URLS, else the \
         ledger's database",
    ),
    setting(
        "lock_lease_ms",
        "STOCKADE_LOCK_LEASE_MS",
        "5000",
        "lease of the reconciler's lock in milliseconds; the reconciler extends it while it works",
    ),
    unset(
        "tls_ca",
        "STOCKADE_TLS_CA",
        "PEM file with the authority that signed the certificates of Redis and the lock's nodes (rediss); unset: those that browsers trust. Brokers, webhooks, the key set and the service \
         that the command line calls may have a certificate of it too",
    ),
    unset(
        "tls_cert",
        "STOCKADE_TLS_CERT",
        "PEM file with the certificate that Redis, the lock's nodes and brokers demand",
    ),
    unset(
        "tls_key",
        "STOCKADE_TLS_KEY",
        "PEM file with the private key of STOCKADE_TLS_CERT",
    ),
    secret(
        "jwt_secret",
        "STOCKADE_JWT_SECRET",
        "secret that signs buyers' tokens (HS256), 16 characters or more",
    ),
    secret(
        "jwt_secret_previous",
        "STOCKADE_JWT_SECRET_PREVIOUS",
        "the secret before this one, accepted as well while the shop's login changes it",
    ),
    unset(
        "jwt_issuer",
        "STOCKADE_JWT_ISSUER",
        "issuer (`iss`) that buyers' tokens must name; unset: any",
    ),
    unset(
        "jwt_audience",
        "STOCKADE_JWT_AUDIENCE",
        "audience (`aud`) that buyers' tokens must name, so that tokens for other applications do not buy; required with STOCKADE_JWKS and STOCKADE_JWT_PUBLIC_KEY. Unset with a secret: any",
    ),
    setting(
        "jwt_leeway_seconds",
        "STOCKADE_JWT_LEEWAY_SECONDS",
        "30",
        "how many seconds `nbf` and `iat` of a buyer's token may be in the future, because the clock of your login is another one; `exp` has no leeway",
    ),
    unset(
        "jwt_public_key",
        "STOCKADE_JWT_PUBLIC_KEY",
        "PEM file with the public key that verifies buyers' tokens, instead of a secret; needs STOCKADE_JWT_AUDIENCE",
    ),
    unset(
        "jwks",
        "STOCKADE_JWKS",
        "file or https:// URL of the JSON Web Key Set that verifies buyers' tokens, instead of a secret or a PEM file; needs STOCKADE_JWT_AUDIENCE",
    ),
    secret(
        "admin_token",
        "STOCKADE_ADMIN_TOKEN",
        "bearer token of the admin `admin`, who may do everything, 16 characters or more",
    ),
    unset(
        "admins_file",
        "STOCKADE_ADMINS_FILE",
        "TOML file with further admins: name, token_sha256 and scopes of each",
    ),
    secret(
        "payment_secret",
        "STOCKADE_PAYMENT_SECRET",
        "secret that signs the payment provider's messages (HMAC-SHA256)",
    ),
    secret(
        "stripe_secret",
        "STOCKADE_STRIPE_SECRET",
        "signing secret of Stripe's webhook endpoint (whsec_...); unset: Stripe's events are refused",
    ),
    secret(
        "stripe_secret_previous",
        "STOCKADE_STRIPE_SECRET_PREVIOUS",
        "the signing secret before this one, accepted as well while it changes",
    ),
    setting(
        "payment_window_seconds",
        "STOCKADE_PAYMENT_WINDOW_SECONDS",
        "300",
        "largest difference in seconds between the time of a payment message and our clock",
    ),
    setting(
        "order_timeout_ms",
        "STOCKADE_ORDER_TIMEOUT_MS",
        "5000",
        "milliseconds after which the service answers that the outcome of an order is unknown",
    ),
    setting(
        "request_timeout_ms",
        "STOCKADE_REQUEST_TIMEOUT_MS",
        "10000",
        "longest duration of a request in milliseconds",
    ),
    setting(
        "drain_delay_ms",
        "STOCKADE_DRAIN_DELAY_MS",
        "0",
        "milliseconds for which a service that was told to stop still accepts requests, while /readyz fails: longer than a balancer takes to notice",
    ),
    setting(
        "drain_timeout_ms",
        "STOCKADE_DRAIN_TIMEOUT_MS",
        "10000",
        "milliseconds that requests in flight get to finish when the service stops",
    ),
    setting(
        "head_timeout_ms",
        "STOCKADE_HEAD_TIMEOUT_MS",
        "30000",
        "milliseconds within which the head of a request must arrive, and a first one after the connection was opened",
    ),
    setting(
        "idle_timeout_ms",
        "STOCKADE_IDLE_TIMEOUT_MS",
        "75000",
        "idle time-out: milliseconds for which a connection stays open after a request without another one. Longer than a balancer keeps its idle connections (60 s is usual), or it sends a request to one that is closed",
    ),
    setting(
        "write_timeout_ms",
        "STOCKADE_WRITE_TIMEOUT_MS",
        "10000",
        "milliseconds that a client may take to read what was sent to it, before its connection is closed",
    ),
    setting(
        "write_rate_min",
        "STOCKADE_WRITE_RATE_MIN",
        "500",
        "bytes that give a client which reads slowly a second of that time back; 0: each byte gives back all of it",
    ),
    setting(
        "body_timeout_ms",
        "STOCKADE_BODY_TIMEOUT_MS",
        "5000",
        "milliseconds that the body of a request may take to arrive, besides the time of its bytes at STOCKADE_BODY_RATE_MIN; after that the answer is 408",
    ),
    setting(
        "body_rate_min",
        "STOCKADE_BODY_RATE_MIN",
        "500",
        "bytes per second at which a body must arrive after STOCKADE_BODY_TIMEOUT_MS; 0: only STOCKADE_REQUEST_TIMEOUT_MS holds",
    ),
    setting(
        "http_threads",
        "STOCKADE_HTTP_THREADS",
        "0",
        "number of threads that serve connections at STOCKADE_LISTEN, each with a runtime of its own, at most 1024; 0: the shared runtime serves them",
    ),
    unset(
        "connections_max",
        "STOCKADE_CONNECTIONS_MAX",
        "largest number of open connections; at the bound one that waits for its client is closed: a silent one, or one whose body has not come. Unset: the descriptor limit less 128",
    ),
    unset(
        "connections_per_peer_max",
        "STOCKADE_CONNECTIONS_PER_PEER_MAX",
        "the same for each client address. Leave it unset behind a proxy, whose connections all have one address",
    ),
    setting(
        "bodies_per_peer_max",
        "STOCKADE_BODIES_PER_PEER_MAX",
        "1000",
        "largest number of requests of one client address whose body has not come whole; the oldest makes room. Proxies of STOCKADE_TRUSTED_PROXIES have no such bound",
    ),
    unset(
        "rate_per_buyer",
        "STOCKADE_RATE_PER_BUYER",
        "requests per second that one buyer may send to this process, and after a slash how many at once: 20/60; more get 429. Unset or `off`: no limit",
    ),
    unset(
        "rate_per_peer",
        "STOCKADE_RATE_PER_PEER",
        "the same for each client address (IPv6: each /64 network). Behind a proxy it needs STOCKADE_TRUSTED_PROXIES",
    ),
    unset(
        "rate_exempt_items",
        "STOCKADE_RATE_EXEMPT_ITEMS",
        "items whose orders do not fall under STOCKADE_RATE_PER_BUYER, comma-separated",
    ),
    unset(
        "rate_exempt_peers",
        "STOCKADE_RATE_EXEMPT_PEERS",
        "addresses or networks of clients that do not fall under STOCKADE_RATE_PER_PEER, comma-separated: the shop's own programs, and gateways that hide the addresses of clients",
    ),
    unset(
        "trusted_proxies",
        "STOCKADE_TRUSTED_PROXIES",
        "addresses or networks of proxies whose STOCKADE_FORWARDED_HEADER names the client, comma-separated: 10.0.0.0/8,fd00::/8",
    ),
    setting(
        "forwarded_header",
        "STOCKADE_FORWARDED_HEADER",
        "x-forwarded-for",
        "header in which trusted proxies name the client: `x-forwarded-for` or `forwarded` (RFC 7239). The other one is ignored: a proxy passes it on as the client has written it",
    ),
    setting(
        "body_bytes_max",
        "STOCKADE_BODY_BYTES_MAX",
        "16384",
        "largest request body in bytes",
    ),
    setting(
        "head_bytes_max",
        "STOCKADE_HEAD_BYTES_MAX",
        "16384",
        "largest request head in bytes",
    ),
    setting(
        "headers_max",
        "STOCKADE_HEADERS_MAX",
        "64",
        "largest number of headers in a request",
    ),
    setting(
        "redis_connect_timeout_ms",
        "STOCKADE_REDIS_CONNECT_TIMEOUT_MS",
        "1000",
        "timeout of a connection to Redis in milliseconds",
    ),
    setting(
        "redis_timeout_ms",
        "STOCKADE_REDIS_TIMEOUT_MS",
        "500",
        "milliseconds after which a call of Redis without a reply is retried",
    ),
    setting(
        "batch_max",
        "STOCKADE_BATCH_MAX",
        "256",
        "largest number of orders in a batch",
    ),
    setting(
        "sold_out_cache_ms",
        "STOCKADE_SOLD_OUT_CACHE_MS",
        "100",
        "milliseconds for which the sold-out cache refuses orders without reading Redis",
    ),
    setting(
        "replicas",
        "STOCKADE_REPLICAS",
        "1",
        "number of replicas that must confirm an order of a `replicated` item before it is acknowledged",
    ),
    setting(
        "replicas_timeout_ms",
        "STOCKADE_REPLICAS_TIMEOUT_MS",
        "100",
        "milliseconds that replicas get to confirm an order before it is retried",
    ),
    setting(
        "recorder_workers",
        "STOCKADE_RECORDER_WORKERS",
        "2",
        "concurrent recording transactions",
    ),
    unset(
        "archive_after",
        "STOCKADE_ARCHIVE_AFTER",
        "how long after its end a closed item is archived by itself, such as 30d; the units are s, m, h and d. Unset: never",
    ),
    setting(
        "drop_retention",
        "STOCKADE_DROP_RETENTION",
        "30d",
        "how long after its archive an item keeps its orders at least, before `DELETE /v1/items/{item}` may drop it; the units are s, m, h and d",
    ),
    unset(
        "drop_after",
        "STOCKADE_DROP_AFTER",
        "how long after its archive an item is dropped by itself, such as 90d; the units are s, m, h and d. Unset: never",
    ),
    unset(
        "drop_exports",
        "STOCKADE_DROP_EXPORTS",
        "folder for the exports of items that are dropped, on a disk that lasts. Order services refuse drops unless it is set for them, too. Unset: the reconcilers of `serve` drop nothing; `up` and `items drop` write into the folder `exports` of --dir",
    ),
    unset(
        "cors_origins",
        "STOCKADE_CORS_ORIGINS",
        "origins whose pages may call the API at STOCKADE_LISTEN from a browser, comma-separated: https://shop.example,...; or *. Unset: none",
    ),
    unset(
        "webhooks_allow_private",
        "STOCKADE_WEBHOOKS_ALLOW_PRIVATE",
        "whether webhooks may have loopback, private and link-local addresses, and http URLs: true or false. Unset: true for `up`, and false for `serve`",
    ),
    setting(
        "webhooks_max",
        "STOCKADE_WEBHOOKS_MAX",
        "100",
        "most webhooks; each has a task in a publisher, and its own place in the events",
    ),
    setting(
        "webhooks_timeout_ms",
        "STOCKADE_WEBHOOKS_TIMEOUT_MS",
        "15000",
        "time for the receiver of a webhook, or the broker of a sink, to answer; then the event is sent again",
    ),
    setting(
        "webhooks_retry_ms",
        "STOCKADE_WEBHOOKS_RETRY_MS",
        "5000",
        "pause before an event that a receiver has not accepted is sent again; it doubles with each further attempt, up to an hour",
    ),
    setting(
        "publisher_lease_ms",
        "STOCKADE_PUBLISHER_LEASE_MS",
        "30000",
        "how long the webhooks and sinks of a publisher that has crashed wait for another one",
    ),
    setting(
        "events_keep_days",
        "STOCKADE_EVENTS_KEEP_DAYS",
        "30",
        "days for which events are kept; a publisher removes older ones, except those that an enabled webhook or a sink has not got",
    ),
    unset(
        "events_redis",
        "STOCKADE_EVENTS_REDIS",
        "server whose Redis stream gets every event: redis://HOST:PORT, or rediss for TLS. Unset: none",
    ),
    setting(
        "events_redis_stream",
        "STOCKADE_EVENTS_REDIS_STREAM",
        "stockade:events",
        "key of the Redis stream that gets every event",
    ),
    setting(
        "events_redis_entries_max",
        "STOCKADE_EVENTS_REDIS_ENTRIES_MAX",
        "100000",
        "entries that the Redis stream keeps; Redis removes older ones in steps, so there may be some more",
    ),
    unset(
        "events_nats",
        "STOCKADE_EVENTS_NATS",
        "servers of the NATS cluster whose JetStream gets every event, comma-separated: nats://HOST:PORT,..., or tls for TLS; needs a build with          `--features nats`. Unset: none",
    ),
    unset(
        "events_nats_credentials",
        "STOCKADE_EVENTS_NATS_CREDENTIALS",
        "credentials file (.creds) of the user that publishes to NATS. Unset: the user of the URL, or none",
    ),
    setting(
        "events_nats_stream",
        "STOCKADE_EVENTS_NATS_STREAM",
        "stockade",
        "stream of JetStream that gets every event; a publisher creates it if it is missing",
    ),
    setting(
        "events_nats_subject",
        "STOCKADE_EVENTS_NATS_SUBJECT",
        "stockade",
        "first word of the subjects of events in NATS; the kind and the item follow",
    ),
    unset(
        "events_amqp",
        "STOCKADE_EVENTS_AMQP",
        "AMQP 0.9.1 broker that gets every event: amqp://USER:PASSWORD@HOST:PORT/VHOST, or amqps for TLS; needs a build with `--features amqp`. Unset: none",
    ),
    setting(
        "events_amqp_exchange",
        "STOCKADE_EVENTS_AMQP_EXCHANGE",
        "stockade",
        "exchange of the type `topic` that gets every event; a publisher creates it if it is missing",
    ),
    setting(
        "log",
        "STOCKADE_LOG",
        "info,sqlx::postgres::notice=warn,async_nats=off,lapin=off,sqlx_core::pool=off",
        "log filter, such as `info` or `stock=debug,info`",
    ),
    setting(
        "log_format",
        "STOCKADE_LOG_FORMAT",
        "text",
        "how the log is written: `text`, or `json` for one object a line",
    ),
];

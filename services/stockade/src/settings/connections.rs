//! What a connection and a request may take.

use std::time::Duration;

use order::Limits;

use super::{
    Settings,
    declaration::settings,
    kinds::{ms, number, optional},
};
use crate::http;

settings! {
    /// What a connection and a request may take.
    Connections {
        /// milliseconds for the head of a request to arrive; for the first one of a connection they
        /// begin when that is opened
        head_timeout_ms: Duration = 30000, ms(100..=600_000);
        /// idle time-out: milliseconds for which a connection stays open after a request without
        /// another one. It must be longer than [your balancer's](operations.md#behind-a-balancer),
        /// which is often 60 s
        idle_timeout_ms: Duration = 75000, ms(100..=86_400_000);
        /// milliseconds for the body of a request to arrive, besides the time of its bytes at
        /// `STOCKADE_BODY_RATE_MIN`; then the answer is 408
        body_timeout_ms: Duration = 5000, ms(100..=600_000);
        /// bytes per second at which a body must arrive after that; 0: only
        /// `STOCKADE_REQUEST_TIMEOUT_MS` holds
        body_rate_min: u64 = 500, number(0..=1_000_000_000);
        /// milliseconds for a client to read what was sent to it
        write_timeout_ms: Duration = 10000, ms(100..=600_000);
        /// bytes that give a [slow reader](operations.md#slow-clients) a second of that time back; 0:
        /// each byte gives back all of it
        write_rate_min: u64 = 500, number(0..=1_000_000_000);
        /// threads that serve connections at `STOCKADE_LISTEN`, each with a runtime of its own, at
        /// most 1024; orders are placed there, and all other requests are answered on the shared
        /// runtime. 0: the shared runtime does both. Leave it at 0 unless
        /// [a measurement](performance.md#threads-for-connections) of your own sale says otherwise
        http_threads: usize = 0, number(0..=1024);
        /// open connections; at the bound one that waits for its client
        /// [is closed](operations.md#slow-clients): a silent one, or one whose body has not come.
        /// `STOCKADE_OPERATORS_LISTEN` has 64 at most. Unset: the descriptor limit less 128
        connections_max: Option<usize>, optional(number(8..=10_000_000));
        /// the same for each client address; leave it unset behind a proxy, whose connections all
        /// have one address
        connections_per_peer_max: Option<usize>, optional(number(1..=10_000_000));
        /// requests of one client address whose body has not come whole; the oldest makes room.
        /// Proxies of `STOCKADE_TRUSTED_PROXIES` have no such bound
        bodies_per_peer_max: usize = 1000, number(1..=10_000_000);
        /// bytes of the largest head
        head_bytes_max: usize = 16384, number(8192..=1_048_576);
        /// most headers
        headers_max: usize = 64, number(8..=1024);
        /// bytes of the largest body
        body_bytes_max: usize = 16384, number(256..=16_777_216);
    }
}

impl Settings {
    /// What the order service admits.
    pub fn limits(&self) -> Limits {
        let Self {
            service,
            connections,
            webhooks,
            ..
        } = self;
        Limits {
            body_bytes: connections.body_bytes_max,
            headers: connections.headers_max,
            head_bytes: connections.head_bytes_max,
            head_timeout: connections.head_timeout_ms,
            idle_timeout: connections.idle_timeout_ms,
            // Longer than an order takes until the service answers that its outcome is unknown. The
            // order may read its item first and the ledger last, so the timeout counts twice.
            request_timeout: service
                .request_timeout_ms
                .max(service.order_timeout_ms * 2 + Duration::from_secs(5)),
            body_timeout: connections.body_timeout_ms,
            body_rate_min: connections.body_rate_min,
            write_timeout: connections.write_timeout_ms,
            write_rate_min: connections.write_rate_min,
            drain_timeout: service.drain_timeout_ms,
            connections: connections.connections_max,
            connections_per_peer: connections.connections_per_peer_max,
            bodies_per_peer: Some(connections.bodies_per_peer_max),
            rates: self.rates.clone(),
            webhook_targets: webhooks.targets(),
            webhook_authority: http::authority(self.tls.as_ref()),
            webhooks: webhooks.webhooks_max,
            threads: connections.http_threads,
            ..Limits::default()
        }
    }
}

//! How a process uses the stock: where Redis is, and the limits and timeouts of its requests.

use std::{fmt, time::Duration};

use lock::without_secrets;
use redis::TlsCertificates;

/// Time after its last deadline for which a final spillover is kept. Clocks of masters that differ
/// by less cannot make an order take twice.
const FORGET_MARGIN: Duration = Duration::from_secs(60);

/// How this process uses the stock.
#[derive(Debug, Clone)]
pub struct StockSettings {
    /// Where Redis is, and how long to wait for it.
    pub redis: RedisSettings,
    /// The most orders in a batch. 512 occupy the server for about two thirds of a millisecond; the
    /// scripts allow 2000.
    pub batch_max: usize,
    /// Time for which a sold-out item is refused from the cache without a new snapshot.
    pub sold_out_cache_ttl: Duration,
    /// Time after its last deadline for which a final spillover is kept, for clocks that differ.
    pub forget_margin: Duration,
    /// Replicas that must have an order of a `replicated` item before it is acknowledged.
    pub replicas: u16,
    /// Time to wait for the replicas before the order is requested again. Not 0: Redis waits
    /// without a limit then.
    pub replicas_timeout: Duration,
}

impl StockSettings {
    /// The defaults for a Redis at `url`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            redis: RedisSettings::new(url),
            batch_max: 256,
            sold_out_cache_ttl: Duration::from_millis(100),
            forget_margin: FORGET_MARGIN,
            replicas: 1,
            replicas_timeout: Duration::from_millis(100),
        }
    }

    pub(crate) fn forget_margin_ms(&self) -> i64 {
        i64::try_from(self.forget_margin.as_millis()).unwrap_or(i64::MAX / 2)
    }
}

/// Where Redis is, and how long to wait for it.
#[derive(Clone)]
pub struct RedisSettings {
    /// `redis://`, `redis+cluster://HOST:PORT,...`, `redis+sentinel://HOST:PORT,.../NAME`; each
    /// also as `rediss` (TLS).
    pub url: String,
    /// Time limit for opening a connection.
    pub connect_timeout: Duration,
    /// Time limit for a reply. After it the outcome is unknown, and the request is repeated.
    pub response_timeout: Duration,
    /// For `rediss`: the authority that signed the servers' certificates, and the certificate that
    /// the servers demand. `None`: the authorities that browsers trust, and no certificate.
    pub tls: Option<TlsCertificates>,
}

impl RedisSettings {
    /// The defaults for `url`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_millis(500),
            tls: None,
        }
    }
}

/// The URL has a password, and the certificate a key, which no log may show.
impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            url,
            connect_timeout,
            response_timeout,
            tls,
        } = self;
        f.debug_struct("RedisSettings")
            .field("url", &without_secrets(url))
            .field("connect_timeout", connect_timeout)
            .field("response_timeout", response_timeout)
            .field("tls", &tls.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::StockSettings;

    #[test]
    fn the_password_of_redis_is_not_shown() {
        let settings = StockSettings::new("redis://ann:sesame@host:6379");
        let shown = format!("{settings:?}");
        assert!(!shown.contains("sesame"), "{shown}");
        assert!(shown.contains("redis://***@host:6379"), "{shown}");
    }
}

//! The stock's Redis.

use std::time::Duration;

use anyhow::{Context, Result};
use stock::{REDIS_SCHEMES, RedisSettings, StockSettings};

use super::{
    Settings,
    declaration::settings,
    kinds::{ms, number, url},
};

settings! {
    /// The stock's Redis, and how its scripts are called.
    Stock {
        /// Redis for the stock: `redis://HOST:PORT`, `redis+cluster://HOST:PORT,...` or
        /// `redis+sentinel://HOST:PORT,.../NAME`; `rediss` for TLS
        redis_url: Option<String>, url(&REDIS_SCHEMES);
        /// milliseconds to connect
        redis_connect_timeout_ms: Duration = 1000, ms(10..=60_000);
        /// milliseconds for a reply; then the call is repeated
        redis_timeout_ms: Duration = 500, ms(10..=60_000);
        /// replicas that must confirm an order of a `replicated` item
        replicas: u16 = 1, number(1..=16);
        /// milliseconds for the replicas; then the order is repeated
        replicas_timeout_ms: Duration = 100, ms(1..=60_000);
        /// most orders in a batch
        batch_max: usize = 256, number(1..=2000);
        /// milliseconds for which the sold-out cache is used before it is refreshed, and refusals
        /// before an item opens are repeated
        sold_out_cache_ms: Duration = 100, ms(0..=60_000);
    }
}

impl Settings {
    /// URL of the stock's Redis.
    pub fn redis_url(&self) -> Result<&str> {
        self.stock.redis_url.as_deref().context(
            "REDIS_URL is not set: expected redis://HOST:PORT, redis+cluster://HOST:PORT,... or redis+sentinel://HOST:PORT,.../NAME",
        )
    }

    /// How to reach the server at `url`.
    pub fn redis(&self, url: &str) -> RedisSettings {
        RedisSettings {
            connect_timeout: self.stock.redis_connect_timeout_ms,
            response_timeout: self.stock.redis_timeout_ms,
            tls: self.tls.clone(),
            ..RedisSettings::new(url)
        }
    }

    /// How the stock is called.
    pub fn stock(&self) -> Result<StockSettings> {
        Ok(StockSettings {
            redis: self.redis(self.redis_url()?),
            batch_max: self.stock.batch_max,
            sold_out_cache_ttl: self.stock.sold_out_cache_ms,
            replicas: self.stock.replicas,
            replicas_timeout: self.stock.replicas_timeout_ms,
            ..StockSettings::new("")
        })
    }
}

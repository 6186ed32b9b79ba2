//! What this process does, where it serves, and how long an order may take.

use std::{net::SocketAddr, time::Duration};

use anyhow::Result;
use order::CorsOrigins;
use recorder::RecorderSettings;

use super::{
    Layers, Settings,
    declaration::settings,
    kinds::{ms, number, optional, parsed, read_by, switch},
};

settings! {
    /// The roles of this process, and its addresses.
    Service {
        /// where to serve; port 0 takes a free one. A process without the role `order` serves only
        /// `/metrics`, `/healthz` and `/readyz`, if this is set
        listen: SocketAddr = "127.0.0.1:8080", parsed("ADDRESS:PORT, such as 127.0.0.1:8080");
        /// where the [operators' pages](operations.md#the-operators-address) are served: `/metrics`,
        /// `/docs`, `/openapi.json` and the console, with `/healthz` and `/readyz`. Unset: an order
        /// service serves none of them, unless `STOCKADE_OPERATORS_AT_LISTEN` is `on`
        operators_listen: Option<SocketAddr>,
            optional(parsed("ADDRESS:PORT, such as 127.0.0.1:9090"));
        /// `on` or `off`: whether an order service serves the operators' pages at `STOCKADE_LISTEN`,
        /// where buyers reach them; not with `STOCKADE_OPERATORS_LISTEN`. Unset: `on` for `up` at a
        /// loopback address, else `off`
        operators_at_listen: Option<bool>, read_by(operators_at_listen);
        /// `on` or `off`: whether a process with the role `order` serves the
        /// [console](operations.md#the-console), where it serves the other pages of operators
        console: bool = "on", switch();
        /// what this process does, comma-separated
        roles: Roles = "order,recorder,reconciler,publisher", read_by(roles);
        /// milliseconds after which the outcome of an order is reported as unknown
        order_timeout_ms: Duration = 5000, ms(50..=60_000);
        /// milliseconds of the longest request
        request_timeout_ms: Duration = 10000, ms(100..=120_000);
        /// milliseconds after SIGTERM for which requests are still accepted while `/readyz` fails, so
        /// that a balancer notices
        drain_delay_ms: Duration = 0, ms(0..=600_000);
        /// milliseconds for open requests at shutdown
        drain_timeout_ms: Duration = 10000, ms(0..=600_000);
        /// concurrent recording transactions; SQLite has one at a time
        recorder_workers: usize = 2, number(1..=64);
        /// origins whose pages may [call the API from a browser](api.md#from-a-browser),
        /// comma-separated: `https://shop.example`; or `*`. Unset: none
        cors_origins: Option<CorsOrigins>, optional(parsed(CorsOrigins::EXPECTED));
    }
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

fn roles(layers: &Layers, key: &str) -> Result<Roles> {
    let text = layers.text(key).unwrap_or_default();
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
                let expected = "a comma-separated list of order, recorder, reconciler, publisher";
                return Err(layers.wrong(key, expected));
            }
        }
    }
    Ok(roles)
}

/// Operators have one place: sessions of the console are known where they began.
fn operators_at_listen(layers: &Layers, key: &str) -> Result<Option<bool>> {
    let set = optional(switch()).read(layers, key)?;
    if set == Some(true) && layers.text("operators_listen").is_some() {
        return Err(layers.wrong(key, "off beside STOCKADE_OPERATORS_LISTEN"));
    }
    Ok(set)
}

impl Service {
    /// How changes are recorded.
    pub fn recorder(&self) -> RecorderSettings {
        RecorderSettings {
            workers: self.recorder_workers,
            ..RecorderSettings::default()
        }
    }
}

impl Settings {
    /// Where the operators' pages have a listener of their own, and the variable that says so. A
    /// process without the role `order` has no other pages; it uses `listen` only if that was set,
    /// because several roles on one machine would share the default address.
    pub fn operators_address(&self) -> Option<(&'static str, SocketAddr)> {
        let Service { listen, roles, .. } = self.service;
        let own = self.service.operators_listen;
        let only = (!roles.order && self.listen_is_set).then_some(listen);
        own.map(|address| ("STOCKADE_OPERATORS_LISTEN", address))
            .or(only.map(|address| ("STOCKADE_LISTEN", address)))
    }
}

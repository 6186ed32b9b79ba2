//! `stockade health`: whether the process that serves on this machine lives. Images need no other
//! program for their health check.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result};
use reqwest::Client;

use crate::settings::{Layers, Service};

/// Shorter than a health check waits.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Asks the process that listens at `STOCKADE_LISTEN`. Exit status 1 if it does not answer, or with
/// `ready` if it cannot sell.
pub async fn health(layers: &Layers, ready: bool) -> Result<ExitCode> {
    let path = if ready { "readyz" } else { "healthz" };
    let url = format!("http://{}/{path}", reachable(Service::listen(layers)?));
    let client = Client::builder().timeout(TIMEOUT).no_proxy().build()?;
    let answer = client.get(&url).send().await.with_context(|| url.clone());
    match answer {
        Ok(answer) if answer.status().is_success() => Ok(ExitCode::SUCCESS),
        Ok(answer) => {
            eprintln!("stockade: {url}: {}", answer.status());
            Ok(ExitCode::from(1))
        }
        Err(error) => {
            eprintln!("stockade: {error:#}");
            Ok(ExitCode::from(1))
        }
    }
}

/// A server that listens at every address is reached at this machine's own.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests {
    use super::reachable;

    #[test]
    fn a_server_of_every_address_is_asked_at_this_machines_own() {
        for (listen, asked) in [
            ("0.0.0.0:8080", "127.0.0.1:8080"),
            ("[::]:8080", "[::1]:8080"),
            ("10.0.0.5:81", "10.0.0.5:81"),
        ] {
            assert_eq!(reachable(listen.parse().unwrap()).to_string(), asked);
        }
    }
}

//! Which addresses a webhook may have.
//!
//! A URL comes from outside, and our network may trust its own machines: without a check, a webhook
//! could reach a database or the metadata service of a cloud. A name is checked by the addresses
//! that it resolves to, at the creation and again for each connection, because the owner of the
//! name can change them at any time.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::LazyLock,
};

use ipnet::{Ipv4Net, Ipv6Net};
use url::{Host, Url};

/// Which addresses are allowed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TargetPolicy {
    /// Also addresses of the own machine and network, and HTTP without TLS.
    pub private: bool,
}

/// Why a URL is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// It is no URL with a supported scheme and a host.
    #[error("expected an https URL with a host, and neither user, password nor fragment")]
    Url,
    /// The host has no address.
    #[error("the host cannot be resolved")]
    NoAddress,
    /// The address is not public.
    #[error(
        "expected a host with public addresses only; {0} is loopback, private, link-local or reserved"
    )]
    Private(IpAddr),
}

/// The URL of a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target(Url);

impl Target {
    /// Checks the text, without resolving its host.
    pub fn parse(text: &str, policy: TargetPolicy) -> Result<Self, TargetError> {
        let url = Url::parse(text).map_err(|_| TargetError::Url)?;
        let scheme = match url.scheme() {
            "https" => true,
            "http" => policy.private,
            _ => false,
        };
        let plain = url.username().is_empty() && url.password().is_none();
        if !scheme || !plain || url.fragment().is_some() || url.host().is_none() {
            return Err(TargetError::Url);
        }
        let target = Self(url);
        match target.literal() {
            Some(address) => policy.check(address).map(|()| target),
            None => Ok(target),
        }
    }

    /// [`Target::parse`], and resolves the host.
    pub async fn resolve(text: &str, policy: TargetPolicy) -> Result<Self, TargetError> {
        let target = Self::parse(text, policy)?;
        if target.literal().is_none() {
            let host = target.0.host_str().unwrap_or_default();
            addresses(host, policy).await?;
        }
        Ok(target)
    }

    /// The URL.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The address, if the host is one. No resolver sees such a host.
    fn literal(&self) -> Option<IpAddr> {
        match self.0.host() {
            Some(Host::Ipv4(address)) => Some(address.into()),
            Some(Host::Ipv6(address)) => Some(address.into()),
            _ => None,
        }
    }
}

/// The addresses of the host, if all are allowed. With one that is not, the host is refused: it has
/// no good reason to have both.
pub(crate) async fn addresses(
    host: &str,
    policy: TargetPolicy,
) -> Result<Vec<SocketAddr>, TargetError> {
    let found = tokio::net::lookup_host((host, 0)).await;
    let found: Vec<_> = found.map_err(|_| TargetError::NoAddress)?.collect();
    if found.is_empty() {
        return Err(TargetError::NoAddress);
    }
    for address in &found {
        policy.check(address.ip())?;
    }
    Ok(found)
}

impl TargetPolicy {
    fn check(self, address: IpAddr) -> Result<(), TargetError> {
        (self.private || is_public(address))
            .then_some(())
            .ok_or(TargetError::Private(address))
    }
}

/// The networks of the IANA registries of special addresses that are not globally reachable, and
/// multicast.
static SPECIAL_V4: LazyLock<Vec<Ipv4Net>> = LazyLock::new(|| {
    let networks = [
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    ];
    networks.iter().filter_map(|net| net.parse().ok()).collect()
});

/// Of the only block of global unicast addresses, those that are not; Teredo has an address of
/// version 4 inside.
static SPECIAL_V6: LazyLock<Vec<Ipv6Net>> = LazyLock::new(|| {
    let networks = ["2001::/23", "2001:db8::/32", "3fff::/20"];
    networks.iter().filter_map(|net| net.parse().ok()).collect()
});

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    !SPECIAL_V4.iter().any(|network| network.contains(&address))
}

/// An address that stands for one of version 4 (mapped, 6to4, NAT64) is as public as that one.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, c, d, e, f, high, low] = address.segments();
    let v4 = |high: u16, low: u16| {
        let [[a, b], [c, d]] = [high.to_be_bytes(), low.to_be_bytes()];
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match [a, b, c, d, e, f] {
        [0, 0, 0, 0, 0, 0xffff] | [0x64, 0xff9b, 0, 0, 0, 0] => v4(high, low),
        [0x2002, high, low, ..] => v4(high, low),
        [0x2000..=0x3fff, ..] => !SPECIAL_V6.iter().any(|network| network.contains(&address)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{Target, TargetError, TargetPolicy};

    const PUBLIC: TargetPolicy = TargetPolicy { private: false };
    const PRIVATE: TargetPolicy = TargetPolicy { private: true };

    #[test]
    fn an_address_of_the_own_machine_or_network_is_refused_in_every_spelling() {
        let refused = [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f.1",
            "0177.0.0.1",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "[::1]",
            "[::]",
            "[fe80::1]",
            "[fc00::1]",
            "[fd12:3456::1]",
            "[ff02::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[64:ff9b::a00:1]",
            "[2002:7f00:1::]",
            "[2001:db8::1]",
            "[2001:0:53aa::1]",
            "[::127.0.0.1]",
            "127.0.0.1.",
            "①②⑦.0.0.1",
        ];
        for host in refused {
            let url = format!("https://{host}/hook");
            assert!(
                matches!(Target::parse(&url, PUBLIC), Err(TargetError::Private(_))),
                "{url}: {:?}",
                Target::parse(&url, PUBLIC)
            );
            assert!(Target::parse(&url, PRIVATE).is_ok(), "{url}");
        }
        let allowed = [
            "1.1.1.1",
            "172.32.0.1",
            "[2606:4700::1111]",
            "[::ffff:1.1.1.1]",
            "shop.example",
        ];
        for host in allowed {
            assert!(
                Target::parse(&format!("https://{host}:8443/a?b=c"), PUBLIC).is_ok(),
                "{host}"
            );
        }
    }

    #[test]
    fn a_url_needs_tls_and_no_password() {
        let urls = [
            "",
            "shop.example",
            "/hook",
            "ftp://shop.example",
            "file:///etc/passwd",
            "https://user@shop.example",
            "https://a:b@shop.example",
            "https://shop.example/#x",
            "https://",
            "unix:/run/x",
        ];
        for url in urls {
            assert_eq!(Target::parse(url, PRIVATE), Err(TargetError::Url), "{url}");
        }
        assert_eq!(
            Target::parse("http://shop.example", PUBLIC),
            Err(TargetError::Url)
        );
        assert!(Target::parse("http://shop.example", PRIVATE).is_ok());
    }

    #[tokio::test]
    async fn a_name_is_refused_for_the_addresses_that_it_resolves_to() {
        let local = Target::resolve("https://localhost/hook", PUBLIC).await;
        assert!(matches!(local, Err(TargetError::Private(_))), "{local:?}");
        assert!(
            Target::resolve("https://localhost/hook", PRIVATE)
                .await
                .is_ok()
        );
        let missing = Target::resolve("https://no-such-host.invalid/hook", PRIVATE).await;
        assert_eq!(missing, Err(TargetError::NoAddress));
    }
}

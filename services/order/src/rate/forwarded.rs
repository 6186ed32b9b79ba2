//! The client behind proxies: `X-Forwarded-For`, or `Forwarded` (RFC 7239).
//!
//! Anyone can send these headers. Each proxy appends the address that it saw, so only the entries that
//! trusted proxies appended are true: the search goes from the last entry to the first one that no
//! trusted proxy has.
//!
//! Only the header that the operator names counts. A proxy writes one of the two and passes the other
//! one on as the client sent it, so a service that reads either lets the client choose its address.

use std::{
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use http::{HeaderMap, HeaderName, header};
use ipnet::IpNet;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The header in which trusted proxies name the client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ForwardedHeader {
    /// `X-Forwarded-For: 192.0.2.1, 10.0.0.7`, which most proxies write.
    #[default]
    XForwardedFor,
    /// `Forwarded: for=192.0.2.1;proto=https, for=10.0.0.7`
    Forwarded,
}

/// The text names no such header.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {}", ForwardedHeader::EXPECTED)]
pub struct UnknownForwardedHeader;

impl ForwardedHeader {
    /// What its text may be.
    pub const EXPECTED: &str = "x-forwarded-for or forwarded";

    fn name(self) -> HeaderName {
        match self {
            Self::XForwardedFor => X_FORWARDED_FOR,
            Self::Forwarded => header::FORWARDED,
        }
    }

    /// The address that one entry names.
    fn address(self, entry: &str) -> Option<IpAddr> {
        match self {
            Self::XForwardedFor => node(entry),
            Self::Forwarded => forwarded_for(entry),
        }
    }
}

impl FromStr for ForwardedHeader {
    type Err = UnknownForwardedHeader;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::XForwardedFor, Self::Forwarded]
            .into_iter()
            .find(|header| header.name().as_str().eq_ignore_ascii_case(text.trim()))
            .ok_or(UnknownForwardedHeader)
    }
}

/// The proxies in front of the service.
pub(super) struct Proxies {
    pub trusted: Vec<IpNet>,
    pub header: ForwardedHeader,
}

impl Proxies {
    /// Address of the client. Where a trusted proxy names none, or hides it, this is the address of the
    /// last proxy that is known, so that each request counts for some address.
    pub(super) fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer;
        for entry in entries(headers, &self.header.name()) {
            if !self.is_trusted(client) {
                break;
            }
            // "unknown", or a name that hides the address: what stands before it is anyone's.
            let Some(address) = self.header.address(entry) else {
                break;
            };
            client = address;
        }
        client
    }

    fn is_trusted(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.trusted
            .iter()
            .any(|network| network.contains(&address))
    }
}

/// The entries of a list header, the last one first.
fn entries<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).iter().rev();
    lines
        .flat_map(|line| line.to_str().unwrap_or_default().rsplit(','))
        .map(str::trim)
}

/// The `for` of one entry of `Forwarded`: `for="[2001:db8::1]:4711";proto=https`.
fn forwarded_for(entry: &str) -> Option<IpAddr> {
    entry.split(';').find_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        name.trim()
            .eq_ignore_ascii_case("for")
            .then(|| node(value.trim().trim_matches('"')))?
    })
}

/// An address, with or without brackets and a port.
fn node(text: &str) -> Option<IpAddr> {
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .unwrap_or(text);
    bare.parse()
        .ok()
        .or_else(|| text.parse::<SocketAddr>().ok().map(|socket| socket.ip()))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::{ForwardedHeader, Proxies, UnknownForwardedHeader};
    use ForwardedHeader::{Forwarded, XForwardedFor};

    fn seen(header: ForwardedHeader, peer: &str, headers: &[(&'static str, &str)]) -> String {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(
                HeaderName::from_static(name),
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        }
        let proxies = Proxies {
            trusted: vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()],
            header,
        };
        proxies.client(peer.parse().unwrap(), &map).to_string()
    }

    #[test]
    fn a_header_of_a_peer_that_is_no_trusted_proxy_is_ignored() {
        let headers = [
            ("forwarded", "for=198.51.100.7"),
            ("x-forwarded-for", "198.51.100.8"),
        ];
        for header in [Forwarded, XForwardedFor] {
            assert_eq!(seen(header, "192.0.2.1", &headers), "192.0.2.1");
        }
        // Headers tell of one hop further, and the client's own is behind it.
        assert_eq!(seen(Forwarded, "10.1.2.3", &headers), "198.51.100.7");
        assert_eq!(seen(XForwardedFor, "10.1.2.3", &headers), "198.51.100.8");
    }

    #[test]
    fn only_the_header_that_the_operator_named_counts() {
        let forwarded = ("forwarded", "for=198.51.100.7");
        let x_forwarded_for = ("x-forwarded-for", "198.51.100.8");
        assert_eq!(seen(XForwardedFor, "10.1.2.3", &[forwarded]), "10.1.2.3");
        assert_eq!(seen(Forwarded, "10.1.2.3", &[x_forwarded_for]), "10.1.2.3");
    }

    #[test]
    fn only_what_trusted_proxies_appended_counts() {
        let cases = [
            // The client wrote the first entry itself.
            (Forwarded, "for=1.1.1.1, for=192.0.2.9", "192.0.2.9"),
            (
                Forwarded,
                "for=1.1.1.1, for=192.0.2.9, For=10.0.0.7",
                "192.0.2.9",
            ),
            (
                Forwarded,
                "proto=https;for=\"192.0.2.9:4711\";by=10.0.0.1",
                "192.0.2.9",
            ),
            (Forwarded, "for=\"[2001:db8::1]:4711\"", "2001:db8::1"),
            (Forwarded, "for=\"[2001:db8::1]\"", "2001:db8::1"),
            (
                Forwarded,
                "for=1.1.1.1, for=unknown, for=10.0.0.7",
                "10.0.0.7",
            ),
            // A quote that the client has opened swallows nothing.
            (Forwarded, "for=\"1.1.1.1, for=192.0.2.9", "192.0.2.9"),
            (XForwardedFor, "1.1.1.1, 192.0.2.9, 10.0.0.7", "192.0.2.9"),
            (XForwardedFor, "192.0.2.9:80", "192.0.2.9"),
            (XForwardedFor, "2001:db8::1", "2001:db8::1"),
            (XForwardedFor, "[2001:db8::1]:443, fd00::7", "2001:db8::1"),
            (XForwardedFor, "1.1.1.1, 10.0.0.8,10.0.0.7", "1.1.1.1"),
            (XForwardedFor, "10.0.0.8, 10.0.0.7", "10.0.0.8"),
        ];
        for (header, value, expected) in cases {
            let name = match header {
                Forwarded => "forwarded",
                XForwardedFor => "x-forwarded-for",
            };
            let seen = seen(header, "10.1.2.3", &[(name, value)]);
            assert_eq!(seen, expected, "{name}: {value}");
        }
        let lines = [
            ("x-forwarded-for", "1.1.1.1"),
            ("x-forwarded-for", "192.0.2.9"),
        ];
        assert_eq!(seen(XForwardedFor, "fd00::1", &lines), "192.0.2.9");
    }

    #[test]
    fn a_trusted_proxy_that_names_no_client_counts_itself() {
        assert_eq!(seen(XForwardedFor, "10.1.2.3", &[]), "10.1.2.3");
        for value in [
            "",
            "unknown",
            "192.0.2.9, unknown",
            "192.0.2.9,",
            "\u{e9}",
            "192.0.2.256",
        ] {
            let headers = [("x-forwarded-for", value)];
            assert_eq!(
                seen(XForwardedFor, "10.1.2.3", &headers),
                "10.1.2.3",
                "{value}"
            );
        }
        for value in [
            "for=unknown",
            "for=_hidden",
            "by=192.0.2.9",
            "192.0.2.9",
            "for=",
        ] {
            let headers = [("forwarded", value)];
            assert_eq!(seen(Forwarded, "10.1.2.3", &headers), "10.1.2.3", "{value}");
        }
        let mapped = seen(
            XForwardedFor,
            "::ffff:10.1.2.3",
            &[("x-forwarded-for", "192.0.2.9")],
        );
        assert_eq!(mapped, "192.0.2.9", "a trusted proxy over IPv6");
    }

    #[test]
    fn the_header_is_named_in_any_case() {
        assert_eq!("X-Forwarded-For".parse(), Ok(XForwardedFor));
        assert_eq!("forwarded".parse(), Ok(Forwarded));
        for text in ["", "x-real-ip", "forwarded,x-forwarded-for"] {
            assert_eq!(
                text.parse::<ForwardedHeader>(),
                Err(UnknownForwardedHeader),
                "{text}"
            );
        }
    }
}

//! The client behind proxies: `X-Forwarded-For`, or `Forwarded` (RFC 7239).
//!
//! Anyone can send these headers. Each proxy appends the address that it saw, so only the entries
//! that trusted proxies appended are true: the search goes from the last entry to the first one
//! that no trusted proxy has.
//!
//! Only the header that the operator names counts. A proxy writes one of the two and passes the
//! other one on as the client sent it, so a service that reads either lets the client choose its
//! address.

use std::{net::IpAddr, str::FromStr};

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

    /// The entries of the header, the last one first. Each is read by itself, so that bytes of the
    /// client hide none that a proxy has appended.
    fn entries(self, headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
        let quotes = match self {
            Self::XForwardedFor => Quotes::None,
            Self::Forwarded => Quotes::Strings,
        };
        let lines = headers.get_all(self.name()).into_iter().rev();
        lines.flat_map(move |line| parts(line.as_bytes(), b',', quotes))
    }

    /// The address that one entry names.
    fn address(self, entry: &[u8]) -> Option<IpAddr> {
        match self {
            Self::XForwardedFor => node(str::from_utf8(entry).ok()?),
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
    /// Address of the client. Where a trusted proxy names none, or hides it, this is the address of
    /// the last proxy that is known, so that each request counts for some address.
    pub(super) fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer;
        for entry in self.header.entries(headers) {
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
        super::contains(&self.trusted, address)
    }
}

/// The parts of a line, the last one first. What a proxy has appended is well formed, so whoever
/// reads from the right knows which quotes belong together; a quote that the client has opened
/// swallows nothing.
fn parts(line: &[u8], separator: u8, quotes: Quotes) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let text = rest?;
        let at = last(text, separator, quotes);
        rest = at.map(|at| &text[..at]);
        Some(at.map_or(text, |at| &text[at + 1..]).trim_ascii())
    })
}

/// Whether a header has quoted strings, in which a separator separates nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quotes {
    None,
    Strings,
}

/// Where the last separator is.
fn last(text: &[u8], separator: u8, quotes: Quotes) -> Option<usize> {
    let mut is_quoted = false;
    text.iter().enumerate().rposition(|(at, &byte)| {
        if byte == b'"' && quotes == Quotes::Strings && !is_escaped(&text[..at]) {
            is_quoted = !is_quoted;
        }
        byte == separator && !is_quoted
    })
}

/// Whether a character after this text has a backslash that is not one of a pair itself.
fn is_escaped(before: &[u8]) -> bool {
    let backslashes = before.iter().rev().take_while(|byte| **byte == b'\\');
    backslashes.count() % 2 == 1
}

/// The `for` of one entry of `Forwarded`: `for="[2001:db8::1]:4711";proto=https`.
fn forwarded_for(entry: &[u8]) -> Option<IpAddr> {
    let value = parts(entry, b';', Quotes::Strings).find_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let is_for = pair[..at].trim_ascii().eq_ignore_ascii_case(b"for");
        is_for.then(|| pair[at + 1..].trim_ascii())
    })?;
    node(str::from_utf8(value).ok()?.trim_matches('"'))
}

/// An address, with or without brackets and a port.
fn node(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']')?,
        None => text.split_at(text.rfind(':')?),
    };
    let is_port = match port.strip_prefix(':') {
        Some(port) => is_port(port),
        None => port.is_empty(),
    };
    is_port.then(|| host.parse().ok())?
}

/// A port, or what hides it: `_` and letters, digits, `.`, `_`, `-` (RFC 7239, section 6.3).
fn is_port(text: &str) -> bool {
    let is_hidden = |name: &str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        !name.is_empty() && name.bytes().all(is_part)
    };
    text.strip_prefix('_')
        .map_or_else(|| text.parse::<u16>().is_ok(), is_hidden)
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::{ForwardedHeader, Proxies, UnknownForwardedHeader};
    use ForwardedHeader::{Forwarded, XForwardedFor};

    fn seen(header: ForwardedHeader, peer: &str, headers: &[(&'static str, &str)]) -> String {
        let bytes = |(name, value): &(&'static str, &str)| (*name, value.as_bytes().to_vec());
        let headers: Vec<_> = headers.iter().map(bytes).collect();
        seen_bytes(header, peer, &headers)
    }

    fn seen_bytes(
        header: ForwardedHeader,
        peer: &str,
        headers: &[(&'static str, Vec<u8>)],
    ) -> String {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(
                HeaderName::from_static(name),
                HeaderValue::from_bytes(value).unwrap(),
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
            // A separator in a quoted string separates nothing.
            (
                Forwarded,
                "for=203.0.113.9;host=\"x,for=6.6.6.6\"",
                "203.0.113.9",
            ),
            (
                Forwarded,
                "host=\"x;for=6.6.6.6\";for=203.0.113.9",
                "203.0.113.9",
            ),
            (
                Forwarded,
                r#"for=203.0.113.9;host="x\", for=6.6.6.6""#,
                "203.0.113.9",
            ),
            (
                Forwarded,
                r#"for=1.1.1.1;host="x\\", for=203.0.113.9;host="y""#,
                "203.0.113.9",
            ),
            (
                Forwarded,
                "for=\"1.1.1.1, for=203.0.113.9;host=\"y\", for=10.0.0.7",
                "203.0.113.9",
            ),
            (Forwarded, "for=\"192.0.2.9:_hidden\"", "192.0.2.9"),
            (Forwarded, "for=\"[2001:db8::1]:_a.b-c_9\"", "2001:db8::1"),
            (XForwardedFor, "192.0.2.9:_hidden", "192.0.2.9"),
            (XForwardedFor, "192.0.2.9:_", "10.1.2.3"),
            (XForwardedFor, "192.0.2.9:65536", "10.1.2.3"),
            (XForwardedFor, "[2001:db8::1]x", "10.1.2.3"),
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
    fn bytes_of_the_client_hide_no_entry_of_a_proxy() {
        for (header, name, value) in [
            (XForwardedFor, "x-forwarded-for", &b"\xe9, 192.0.2.9"[..]),
            (Forwarded, "forwarded", &b"for=\xe9, for=192.0.2.9"[..]),
            (Forwarded, "forwarded", &b"host=\"\xe9\";for=192.0.2.9"[..]),
        ] {
            let headers = [(name, value.to_vec())];
            assert_eq!(seen_bytes(header, "10.1.2.3", &headers), "192.0.2.9");
        }
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

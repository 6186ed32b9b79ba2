//! The client behind proxies: `Forwarded` (RFC 7239) or `X-Forwarded-For`.
//!
//! Anyone can send these headers. Each proxy appends the address that it saw, so only the entries that
//! trusted proxies appended are true: the search goes from the last entry to the first one that no
//! trusted proxy has.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName, header};
use ipnet::IpNet;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Address of the client. `None`: a trusted proxy that names no client, such as its health check.
pub(super) fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> Option<IpAddr> {
    let is_trusted = |address: IpAddr| {
        let address = address.to_canonical();
        trusted.iter().any(|network| network.contains(&address))
    };
    if !is_trusted(peer) {
        return Some(peer);
    }
    let mut last_known = None;
    let (name, parse): (HeaderName, fn(&str) -> Option<IpAddr>) =
        if headers.contains_key(header::FORWARDED) {
            (header::FORWARDED, forwarded_for)
        } else {
            (X_FORWARDED_FOR, node)
        };
    for entry in entries(headers, &name).map(parse) {
        match entry {
            Some(address) if is_trusted(address) => last_known = Some(address),
            Some(address) => return Some(address),
            // "unknown", or a name that hides the address: what stands before it is anyone's.
            None => break,
        }
    }
    last_known
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
    use std::net::IpAddr;

    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::client;

    fn seen(peer: &str, headers: &[(&'static str, &str)]) -> Option<String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(
                HeaderName::from_static(name),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        let trusted = ["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
        client(peer.parse().unwrap(), &map, &trusted).map(|address: IpAddr| address.to_string())
    }

    #[test]
    fn a_header_of_a_peer_that_is_no_trusted_proxy_is_ignored() {
        let headers = [
            ("forwarded", "for=198.51.100.7"),
            ("x-forwarded-for", "198.51.100.8"),
        ];
        assert_eq!(seen("192.0.2.1", &headers).as_deref(), Some("192.0.2.1"));
        assert_eq!(seen("10.1.2.3", &headers).as_deref(), Some("198.51.100.7"));
    }

    #[test]
    fn only_what_trusted_proxies_appended_counts() {
        let cases = [
            // The client wrote the first entry itself.
            ("forwarded", "for=1.1.1.1, for=192.0.2.9", "192.0.2.9"),
            (
                "forwarded",
                "for=1.1.1.1, for=192.0.2.9, For=10.0.0.7",
                "192.0.2.9",
            ),
            (
                "forwarded",
                "proto=https;for=\"192.0.2.9:4711\";by=10.0.0.1",
                "192.0.2.9",
            ),
            ("forwarded", "for=\"[2001:db8::1]:4711\"", "2001:db8::1"),
            ("forwarded", "for=\"[2001:db8::1]\"", "2001:db8::1"),
            (
                "forwarded",
                "for=1.1.1.1, for=unknown, for=10.0.0.7",
                "10.0.0.7",
            ),
            (
                "x-forwarded-for",
                "1.1.1.1, 192.0.2.9, 10.0.0.7",
                "192.0.2.9",
            ),
            ("x-forwarded-for", "192.0.2.9:80", "192.0.2.9"),
            ("x-forwarded-for", "2001:db8::1", "2001:db8::1"),
        ];
        for (name, value, expected) in cases {
            let seen = seen("10.1.2.3", &[(name, value)]);
            assert_eq!(seen.as_deref(), Some(expected), "{name}: {value}");
        }
        let lines = [
            ("x-forwarded-for", "1.1.1.1"),
            ("x-forwarded-for", "192.0.2.9"),
        ];
        assert_eq!(seen("fd00::1", &lines).as_deref(), Some("192.0.2.9"));
    }

    #[test]
    fn a_trusted_proxy_that_names_no_client_is_not_a_client() {
        assert_eq!(seen("10.1.2.3", &[]), None);
        assert_eq!(seen("10.1.2.3", &[("forwarded", "for=_hidden")]), None);
        assert_eq!(seen("::ffff:10.1.2.3", &[("x-forwarded-for", "")]), None);
    }
}

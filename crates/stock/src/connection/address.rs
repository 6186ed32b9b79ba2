//! The forms of `REDIS_URL`: one server, a cluster, or sentinels.

use lock::{unencoded, unencoded_text, without_secrets};

use crate::StockError;

/// Port of a sentinel whose address names none.
const SENTINEL_PORT: u16 = 26_379;

/// Where the stock is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// The URL of one server.
    Single(String),
    /// The URLs of some nodes of a cluster.
    Cluster(Vec<String>),
    /// The sentinels that name the master.
    Sentinel(SentinelAddress),
}

/// Addresses of sentinels, and their name for the master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SentinelAddress {
    scheme: &'static str,
    /// `USER:PASSWORD@`, or nothing.
    credentials: String,
    sentinels: Vec<String>,
    pub(super) name: String,
}

impl SentinelAddress {
    /// The URL of a server that a sentinel named.
    pub(super) fn server(&self, host: &str, port: u16) -> String {
        let host = if host.contains(':') {
            format!("[{host}]")
        } else {
            host.to_owned()
        };
        format!("{}{}{host}:{port}", self.scheme, self.credentials)
    }

    /// For each sentinel the URLs to try in turn. The credentials are those of the servers. A
    /// sentinel may require the same or none, and one that requires none refuses them.
    pub(super) fn sentinels(&self) -> Vec<Vec<String>> {
        let credentials = if self.credentials.is_empty() {
            vec![""]
        } else {
            vec!["", &self.credentials]
        };
        let urls = |host: &String| {
            credentials
                .iter()
                .map(|credentials| format!("{}{credentials}{host}", self.scheme))
                .collect()
        };
        self.sentinels.iter().map(urls).collect()
    }
}

/// Schemes of the URLs.
pub const REDIS_SCHEMES: [&str; 6] = [
    "redis",
    "rediss",
    "redis+cluster",
    "rediss+cluster",
    "redis+sentinel",
    "rediss+sentinel",
];

const CLUSTERS: [(&str, &str); 2] = [
    ("redis+cluster://", "redis://"),
    ("rediss+cluster://", "rediss://"),
];
const SENTINELS: [(&str, &str); 2] = [
    ("redis+sentinel://", "redis://"),
    ("rediss+sentinel://", "rediss://"),
];

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, StockError> {
        let wrong = || StockError::Url(without_secrets(url));
        if let Some(found) = unencoded(url, lists_hosts(url)) {
            return Err(StockError::Url(format!(
                "{}: expected {}",
                without_secrets(url),
                unencoded_text(found)
            )));
        }
        if let Some((scheme, rest)) = strip(url, CLUSTERS) {
            let (credentials, hosts) = split_credentials(rest);
            return Ok(Self::Cluster(
                hosts
                    .split(',')
                    .map(|host| format!("{scheme}{credentials}{host}"))
                    .collect(),
            ));
        }
        if let Some((scheme, rest)) = strip(url, SENTINELS) {
            let (credentials, rest) = split_credentials(rest);
            let (hosts, name) = rest.split_once('/').ok_or_else(wrong)?;
            let sentinels: Vec<_> = hosts.split(',').map(with_sentinel_port).collect();
            if name.is_empty() || name.contains(['/', '?']) || hosts.split(',').any(str::is_empty) {
                return Err(wrong());
            }
            return Ok(Self::Sentinel(SentinelAddress {
                scheme,
                credentials: credentials.into(),
                sentinels,
                name: name.into(),
            }));
        }
        if url.starts_with("redis://") || url.starts_with("rediss://") {
            return Ok(Self::Single(url.into()));
        }
        Err(wrong())
    }
}

/// Whether the URL has a list of hosts: those of a cluster, or sentinels.
pub fn lists_hosts(url: &str) -> bool {
    strip(url, CLUSTERS).or(strip(url, SENTINELS)).is_some()
}

fn strip<'a>(url: &'a str, schemes: [(&str, &'static str); 2]) -> Option<(&'static str, &'a str)> {
    schemes
        .into_iter()
        .find_map(|(prefix, scheme)| Some((scheme, url.strip_prefix(prefix)?)))
}

/// Splits off the credentials, which stand once in front of the first host and apply to all of
/// them. They keep their `@`.
fn split_credentials(rest: &str) -> (&str, &str) {
    rest.rfind('@')
        .map_or(("", rest), |at| rest.split_at(at + 1))
}

fn with_sentinel_port(host: &str) -> String {
    let port = host
        .rsplit_once(':')
        .filter(|(_, port)| port.parse::<u16>().is_ok());
    if port.is_some() {
        host.to_owned()
    } else {
        format!("{host}:{SENTINEL_PORT}")
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn urls_name_a_server_or_the_nodes_of_a_cluster() {
        assert_eq!(
            Address::parse("redis://h:1").unwrap(),
            Address::Single("redis://h:1".into())
        );
        let nodes = vec!["redis://u:p@a:1".into(), "redis://u:p@b:2".into()];
        assert_eq!(
            Address::parse("redis+cluster://u:p@a:1,b:2").unwrap(),
            Address::Cluster(nodes)
        );
        let nodes = vec!["rediss://a:1".into()];
        assert_eq!(
            Address::parse("rediss+cluster://a:1").unwrap(),
            Address::Cluster(nodes)
        );
        assert!(Address::parse("http://h").is_err());
    }

    #[test]
    fn urls_name_sentinels_and_their_name_for_the_master() {
        let parse = |url: &str| match Address::parse(url) {
            Ok(Address::Sentinel(address)) => address,
            other => panic!("{url}: {other:?}"),
        };
        let open = parse("redis+sentinel://a:1,b/shop");
        assert_eq!(open.sentinels(), [["redis://a:1"], ["redis://b:26379"]]);
        assert_eq!(
            (&*open.name, &*open.server("c", 3), &*open.server("::1", 3)),
            ("shop", "redis://c:3", "redis://[::1]:3")
        );
        let closed = parse("rediss+sentinel://u:p@a:1/shop");
        assert_eq!(closed.sentinels(), [["rediss://a:1", "rediss://u:p@a:1"]]);
        assert_eq!(closed.server("c", 3), "rediss://u:p@c:3");
        for wrong in [
            "redis+sentinel://a:1",
            "redis+sentinel://a:1/",
            "redis+sentinel:///shop",
            "redis+sentinel://a:1,/shop",
        ] {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_error_does_not_show_a_password() {
        for url in [
            "http://user:secret@host",
            "redis+sentinel://user:secret@host",
            "redis+sentinel://user:secret",
            "user:secret@host",
            "redis+sentinel://user:sec/ret@host",
        ] {
            let error = Address::parse(url).expect_err(url).to_string();
            assert!(!error.contains("sec") && !error.contains("ret"), "{error}");
        }
    }

    #[test]
    fn a_password_that_a_client_would_misread_is_refused_with_what_to_do() {
        for (url, encoded) in [
            ("redis+cluster://u:pa,ss@a:1,b:2", "%2C"),
            // One password for all of them, and not one for each.
            ("redis+cluster://u:pa@a:1,u:ss@b:2", "%2C"),
            ("rediss+sentinel://u:pa,ss@a:1,b:2/shop", "%2C"),
            ("rediss+sentinel://u:pa/ss@a:1,b:2/shop", "%2F"),
            ("redis://u:pa#ss@a:1", "%23"),
            ("redis://u:pa?ss@a:1", "%3F"),
        ] {
            let error = Address::parse(url).expect_err(url).to_string();
            assert!(
                error.contains("REDIS_URL") && error.contains(encoded),
                "{error}"
            );
            assert!(!error.contains("pa,") && !error.contains("ss@"), "{error}");
        }
        let nodes = vec![
            "redis://u:pa%2Css@a:1".into(),
            "redis://u:pa%2Css@b:2".into(),
        ];
        assert_eq!(
            Address::parse("redis+cluster://u:pa%2Css@a:1,b:2").unwrap(),
            Address::Cluster(nodes)
        );
        Address::parse("redis://u:pa,ss@a:1").expect("a comma has one reading here");
    }
}

//! Limits of the rate at which one buyer, and one peer, may send requests.
//!
//! A program that repeats requests as fast as it can takes the processor that the crowd needs, even
//! if each of its requests is refused. A request above the limit is answered with 429 before it
//! reaches Redis or the ledger, and says when the next one will be admitted.
//!
//! The limit is a token bucket (GCRA, crate `governor`) for each buyer and peer. It is kept by each
//! process: behind a balancer, a client gets the limit of each process that it reaches.

mod forwarded;

use std::{
    hash::{BuildHasher, Hash, RandomState},
    net::{IpAddr, Ipv6Addr},
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use domain::{BuyerId, ItemId};
use governor::{
    DefaultKeyedRateLimiter, Quota, RateLimiter,
    clock::{Clock, DefaultClock},
};
use http::HeaderMap;
use ipnet::IpNet;
use metrics::Counter;

pub use forwarded::ForwardedHeader;
use forwarded::Proxies;

/// A rate that is admitted all the time, and a burst that is admitted at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    quota: Quota,
}

impl Rate {
    /// One request per `interval`, and `burst` at once after a pause. `None` if the interval is
    /// zero.
    pub fn new(interval: Duration, burst: NonZeroU32) -> Option<Self> {
        Quota::with_period(interval).map(|quota| Self {
            quota: quota.allow_burst(burst),
        })
    }

    /// Requests that are admitted at once after a pause.
    pub fn burst(&self) -> u32 {
        self.quota.burst_size().get()
    }

    /// The seconds within which the whole burst is admitted again, rounded up.
    pub(crate) fn window(&self) -> u32 {
        whole_seconds(self.quota.replenish_interval() * self.burst())
    }
}

/// At least one.
fn whole_seconds(time: Duration) -> u32 {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    u32::try_from(seconds.max(1)).unwrap_or(u32::MAX)
}

/// How many requests are admitted of each client. The default has no limit.
#[derive(Debug, Clone, Default)]
pub struct RateLimits {
    /// Limit of each buyer. `None`: no limit.
    pub buyer: Option<Rate>,
    /// Limit of each client address (IPv6: of each /64 network). `None`: no limit.
    pub peer: Option<Rate>,
    /// Items whose orders do not fall under the buyers' limit.
    pub exempt_items: Vec<ItemId>,
    /// Networks whose clients have no limit of their address: the shop's own programs, and gateways
    /// that hide the addresses of many clients.
    pub exempt_peers: Vec<IpNet>,
    /// Proxies that name the client.
    pub trusted_proxies: Vec<IpNet>,
    /// The header in which they name it.
    pub forwarded_header: ForwardedHeader,
}

/// A request above a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany {
    /// Whose limit: `buyer` or `peer`.
    pub of: &'static str,
    pub rate: Rate,
    /// Time until the next request is admitted.
    pub wait: Duration,
}

impl TooMany {
    /// [`TooMany::wait`] in seconds, rounded up.
    pub(crate) fn retry_after(&self) -> u32 {
        whole_seconds(self.wait)
    }
}

/// The buyers' limit.
pub(crate) struct BuyerRates {
    limiter: Option<Limiter>,
    exempt_items: Vec<ItemId>,
}

impl BuyerRates {
    pub(crate) fn new(limits: &RateLimits) -> Self {
        Self {
            limiter: limits.buyer.map(|rate| Limiter::new("buyer", rate)),
            exempt_items: limits.exempt_items.clone(),
        }
    }

    /// Counts a request of this buyer to this path.
    pub(crate) fn admit(&self, buyer: &BuyerId, path: &str) -> Result<(), TooMany> {
        match &self.limiter {
            Some(limiter) if !self.is_exempt(path) => limiter.admit(buyer, NonZeroU32::MIN),
            _ => Ok(()),
        }
    }

    /// Counts the lines of a cart after the first, which its request has been counted for.
    pub(crate) fn admit_lines(&self, buyer: &BuyerId, lines: usize) -> Result<(), TooMany> {
        let limiter = self.limiter.as_ref();
        limiter.map_or(Ok(()), |limiter| limiter.admit_lines(buyer, lines))
    }

    fn is_exempt(&self, path: &str) -> bool {
        let mut parts = path.split('/').skip(2);
        !self.exempt_items.is_empty()
            && parts.next() == Some("items")
            && parts
                .next()
                .is_some_and(|name| self.exempt_items.iter().any(|item| item.as_str() == name))
    }
}

/// A balancer and a monitor ask these often, and an answer costs nothing.
const UNLIMITED_PATHS: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// The peers' limit.
pub(crate) struct PeerRates {
    limiter: Option<Limiter>,
    exempt: Vec<IpNet>,
    proxies: Proxies,
}

impl PeerRates {
    pub(crate) fn new(limits: &RateLimits) -> Self {
        Self {
            limiter: limits.peer.map(|rate| Limiter::new("peer", rate)),
            exempt: limits.exempt_peers.clone(),
            proxies: Proxies {
                trusted: limits.trusted_proxies.clone(),
                header: limits.forwarded_header,
            },
        }
    }

    /// Counts a request to this path that came over a connection of this peer.
    pub(crate) fn admit(
        &self,
        peer: IpAddr,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<(), TooMany> {
        let Some(limiter) = &self.limiter else {
            return Ok(());
        };
        if UNLIMITED_PATHS.contains(&path) {
            return Ok(());
        }
        let client = self.proxies.client(peer, headers);
        if contains(&self.exempt, client) {
            return Ok(());
        }
        limiter.admit(&network(client), NonZeroU32::MIN)
    }

    /// Who has sent a request that came over a connection of this peer.
    pub(crate) fn client(&self, peer: IpAddr, headers: &HeaderMap) -> ClientAddress {
        ClientAddress(network(self.proxies.client(peer, headers)))
    }

    /// The bucket of a request, for what its body asks for. `None`: this peer has no limit.
    pub(crate) fn bucket(
        self: &Arc<Self>,
        peer: IpAddr,
        headers: &HeaderMap,
    ) -> Option<PeerBucket> {
        self.limiter.as_ref()?;
        let client = self.proxies.client(peer, headers);
        (!contains(&self.exempt, client)).then(|| PeerBucket {
            rates: Arc::clone(self),
            network: network(client),
        })
    }
}

/// The address that a request counts for: that of its client, by the proxies that are trusted. Of
/// IPv6, its /64 network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientAddress(pub IpAddr);

/// The bucket of one peer.
#[derive(Clone)]
pub(crate) struct PeerBucket {
    rates: Arc<PeerRates>,
    network: IpAddr,
}

impl PeerBucket {
    /// Counts the lines of a cart, or the items of a read, after the first, which its request has
    /// been counted for.
    pub(crate) fn admit_lines(&self, lines: usize) -> Result<(), TooMany> {
        let limiter = self.rates.limiter.as_ref();
        limiter.map_or(Ok(()), |limiter| limiter.admit_lines(&self.network, lines))
    }
}

fn contains(networks: &[IpNet], address: IpAddr) -> bool {
    let address = address.to_canonical();
    networks.iter().any(|network| network.contains(&address))
}

/// A host of IPv6 has a whole /64 network of addresses to choose from.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let host_bits = u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !host_bits))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// A token bucket for each key. Keys are hashed with a secret of this process, so that no client
/// can choose one that shares a bucket with another client's.
struct Limiter {
    of: &'static str,
    rate: Rate,
    buckets: Arc<DefaultKeyedRateLimiter<u64>>,
    hashes: RandomState,
    clock: DefaultClock,
    since_sweep: AtomicU32,
    refused: Counter,
}

/// Requests after which full buckets are removed. A request adds one bucket at most, so this also
/// bounds the memory of buckets that are out of use.
const SWEEP_AFTER: u32 = 65_536;

impl Limiter {
    fn new(of: &'static str, rate: Rate) -> Self {
        Self {
            of,
            rate,
            buckets: Arc::new(RateLimiter::keyed(rate.quota)),
            hashes: RandomState::new(),
            clock: DefaultClock::default(),
            since_sweep: AtomicU32::new(0),
            refused: metrics::counter!("stockade_requests_limited_total", "limit" => of),
        }
    }

    /// Takes the tokens of all lines but the first. More than the burst are never asked for: a cart
    /// with more lines needs a full bucket, and empties it.
    fn admit_lines(&self, key: &impl Hash, lines: usize) -> Result<(), TooMany> {
        let lines = u32::try_from(lines).unwrap_or(u32::MAX);
        let more = lines.min(self.rate.burst()).saturating_sub(1);
        let Some(more) = NonZeroU32::new(more) else {
            return Ok(());
        };
        self.admit(key, more).map_err(|refused| TooMany {
            // The repeat of the request takes a token before it gets here.
            wait: refused.wait + self.rate.quota.replenish_interval(),
            ..refused
        })
    }

    /// Takes so many tokens, at most the burst, or none.
    fn admit(&self, key: &impl Hash, tokens: NonZeroU32) -> Result<(), TooMany> {
        self.sweep_in_turn();
        let key = self.hashes.hash_one(key);
        let admitted = self.buckets.check_key_n(&key, tokens).unwrap_or(Ok(()));
        admitted.map_err(|until| {
            self.refused.increment(1);
            TooMany {
                of: self.of,
                rate: self.rate,
                wait: until.wait_time_from(self.clock.now()),
            }
        })
    }

    fn sweep_in_turn(&self) {
        if self.since_sweep.fetch_add(1, Ordering::Relaxed) == SWEEP_AFTER {
            self.since_sweep.store(0, Ordering::Relaxed);
            let buckets = Arc::clone(&self.buckets);
            // A large map takes milliseconds, which no request should wait for.
            tokio::task::spawn_blocking(move || buckets.retain_recent());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{net::IpAddr, num::NonZeroU32, sync::Arc, time::Duration};

    use domain::BuyerId;
    use http::HeaderMap;

    use super::{BuyerRates, PeerRates, Rate, RateLimits, SWEEP_AFTER};

    const HOUR: Duration = Duration::from_secs(3600);

    fn rate(interval: Duration, burst: u32) -> Option<Rate> {
        Rate::new(interval, NonZeroU32::new(burst)?)
    }

    fn buyer(name: &str) -> BuyerId {
        BuyerId::new(name).unwrap()
    }

    #[test]
    fn a_buyer_gets_the_burst_and_another_buyer_is_not_harmed() {
        let rates = BuyerRates::new(&RateLimits {
            buyer: rate(HOUR, 3),
            ..RateLimits::default()
        });
        let admitted = (0..10)
            .filter(|_| rates.admit(&buyer("ann"), "/v1/items/a/orders").is_ok())
            .count();
        assert_eq!(admitted, 3);
        let refused = rates
            .admit(&buyer("ann"), "/v1/items/a/orders")
            .expect_err("the burst is used up");
        assert!(
            (3500..=3600).contains(&refused.retry_after()),
            "{refused:?}"
        );
        assert_eq!(refused.rate.window(), 3 * 3600);
        assert!(rates.admit(&buyer("bob"), "/v1/items/a/orders").is_ok());
    }

    #[test]
    fn a_cart_takes_a_token_for_each_line_and_is_admitted_after_the_time_that_it_was_told() {
        let rates_of = |interval| {
            BuyerRates::new(&RateLimits {
                buyer: rate(interval, 5),
                ..RateLimits::default()
            })
        };
        let place = |rates: &BuyerRates, name: &str, lines| {
            let buyer = buyer(name);
            rates.admit(&buyer, "/v1/carts")?;
            rates.admit_lines(&buyer, lines)
        };
        let slow = rates_of(HOUR);
        place(&slow, "ann", 4).unwrap();
        let refused = place(&slow, "ann", 4).expect_err("one token is left");
        assert!((3 * HOUR..=5 * HOUR).contains(&refused.wait), "{refused:?}");
        place(&slow, "bob", 20).expect("no bucket has so many tokens: a full one does");
        place(&slow, "bob", 1).expect_err("it is empty now");

        let rates = rates_of(Duration::from_millis(20));
        // A busy machine gets tokens back between two of them.
        let refused = loop {
            if let Err(refused) = place(&rates, "ann", 4) {
                break refused;
            }
        };
        std::thread::sleep(refused.wait);
        place(&rates, "ann", 4).expect("admitted after the time that it was told");
    }

    #[test]
    fn an_exempt_item_is_exempt_on_all_of_its_paths_and_no_other_item_is() {
        let rates = BuyerRates::new(&RateLimits {
            buyer: rate(HOUR, 1),
            exempt_items: vec!["free".parse().unwrap()],
            ..RateLimits::default()
        });
        for _ in 0..5 {
            assert!(rates.admit(&buyer("ann"), "/v1/items/free/orders").is_ok());
        }
        assert!(
            rates
                .admit(&buyer("ann"), "/v1/items/freedom/orders")
                .is_ok()
        );
        assert!(
            rates
                .admit(&buyer("ann"), "/v1/items/freedom/orders")
                .is_err()
        );
        assert!(rates.admit(&buyer("ann"), "/v1/orders/free").is_err());
    }

    #[test]
    fn addresses_of_one_ipv6_network_share_a_limit() {
        let rates = PeerRates::new(&RateLimits {
            peer: rate(HOUR, 1),
            ..RateLimits::default()
        });
        let admit = |address: &str| {
            let address: IpAddr = address.parse().unwrap();
            rates.admit(address, "/", &HeaderMap::new()).is_ok()
        };
        assert!(admit("2001:db8:1:2::1"));
        assert!(!admit("2001:db8:1:2:ffff::9"));
        assert!(admit("2001:db8:1:3::1"));
        assert!(admit("192.0.2.1"));
        assert!(!admit("::ffff:192.0.2.1"), "the same host, mapped");
        assert!(admit("192.0.2.2"));
    }

    #[test]
    fn an_exempt_network_has_no_limit_and_lends_its_exemption_to_no_other_client() {
        let networks = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let rates = Arc::new(PeerRates::new(&RateLimits {
            peer: rate(HOUR, 1),
            exempt_peers: networks(&["10.0.0.0/8", "fd00::/8"]),
            trusted_proxies: networks(&["10.0.0.0/24"]),
            ..RateLimits::default()
        }));
        let admitted = |peer: &str, forwarded: &str| {
            let (peer, mut headers) = (peer.parse().unwrap(), HeaderMap::new());
            headers.insert("x-forwarded-for", forwarded.parse().unwrap());
            let bucket = rates.bucket(peer, &headers);
            let admitted = (0..3).filter(|_| rates.admit(peer, "/", &headers).is_ok());
            (admitted.count(), bucket.is_some())
        };
        let (unlimited, limited) = ((3, false), (1, true));
        for (peer, forwarded, expected) in [
            ("10.7.0.1", "", unlimited),
            ("::ffff:10.7.0.1", "", unlimited),
            ("fd00::1", "", unlimited),
            ("192.0.2.1", "", limited),
            // A client that the proxy names, and a network behind it.
            ("10.0.0.1", "192.0.2.2", limited),
            ("10.0.0.1", "10.7.0.1", unlimited),
            // What a client writes itself stands before the entry of the proxy.
            ("10.0.0.1", "10.7.0.1, 192.0.2.3", limited),
            ("192.0.2.4", "10.7.0.1", limited),
        ] {
            assert_eq!(admitted(peer, forwarded), expected, "{peer} {forwarded}");
        }
    }

    #[tokio::test]
    async fn buckets_of_clients_that_left_are_removed() {
        let limits = RateLimits {
            buyer: rate(Duration::from_millis(1), 1),
            ..RateLimits::default()
        };
        let rates = BuyerRates::new(&limits);
        for n in 0..SWEEP_AFTER {
            let _ = rates.admit(&buyer(&format!("buyer-{n}")), "/");
        }
        let buckets = &rates.limiter.as_ref().unwrap().buckets;
        assert!(buckets.len() > 60_000);
        tokio::time::sleep(Duration::from_millis(50)).await;
        let _ = rates.admit(&buyer("last"), "/");
        let _ = rates.admit(&buyer("last"), "/");
        testkit::eventually("the removal of most buckets", async || buckets.len() < 1000).await;
    }
}

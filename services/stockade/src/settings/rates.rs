//! The settings of the rate limits.

use std::{net::IpAddr, num::NonZeroU32, time::Duration};

use anyhow::Result;
use domain::ItemId;
use ipnet::IpNet;
use order::{ForwardedHeader, Rate, RateLimits};

use super::{
    Layers,
    declaration::settings,
    kinds::{list, parsed, read_by},
};

/// What a list of networks must be.
const NETWORKS: &str = "addresses or networks, comma-separated, such as 10.0.0.0/8,fd00::/8";

/// Rates above this one are none.
const RATE_MAX: u32 = 1_000_000;

settings! {
    /// How many requests a client may send, and which header names it.
    Rates {
        /// requests per second of one buyer, and after a slash how many at once: `20/60`; more get
        /// 429. Unset or `off`: no limit
        rate_per_buyer: Option<Rate>, read_by(rate);
        /// the same for each client address (IPv6: each /64 network); behind a proxy it needs
        /// `STOCKADE_TRUSTED_PROXIES`
        rate_per_peer: Option<Rate>, read_by(rate);
        /// items whose orders do not fall under the buyers' limit, comma-separated
        rate_exempt_items: Vec<ItemId>, list("item ids, comma-separated", |text| text.parse().ok());
        /// clients that do not fall under the limit of addresses, as addresses or networks,
        /// comma-separated: the shop's own programs, and
        /// [gateways that hide clients](operations.md#limits-at-the-door)
        rate_exempt_peers: Vec<IpNet>, list(NETWORKS, network);
        /// proxies whose header names the client, comma-separated: `10.0.0.0/8,fd00::/8`
        trusted_proxies: Vec<IpNet>, list(NETWORKS, network);
        /// the header in which they name it: `x-forwarded-for` or `forwarded` (RFC 7239).
        /// [The other one is ignored](operations.md#limits-at-the-door): a proxy passes it on as the
        /// client has written it
        forwarded_header: ForwardedHeader = "x-forwarded-for", parsed(ForwardedHeader::EXPECTED);
    }
}

pub(super) fn read(layers: &Layers) -> Result<RateLimits> {
    let rates = Rates::read(layers)?;
    Ok(RateLimits {
        buyer: rates.rate_per_buyer,
        peer: rates.rate_per_peer,
        exempt_items: rates.rate_exempt_items,
        exempt_peers: rates.rate_exempt_peers,
        trusted_proxies: rates.trusted_proxies,
        forwarded_header: rates.forwarded_header,
    })
}

fn rate(layers: &Layers, key: &str) -> Result<Option<Rate>> {
    match layers.text(key).as_deref() {
        None | Some("off") => Ok(None),
        Some(text) => parse_rate(text).map(Some).ok_or_else(|| {
            layers.wrong(
                key,
                "requests per second, or with a burst as in 20/60, each between 1 and 1000000, or off",
            )
        }),
    }
}

/// `20` admits 20 in a second and 20 at once, `20/60` as many in a second and 60 at once.
fn parse_rate(text: &str) -> Option<Rate> {
    let (per_second, burst) = text.split_once('/').unwrap_or((text, text));
    let number = |text: &str| {
        let number: NonZeroU32 = text.trim().parse().ok()?;
        (number.get() <= RATE_MAX).then_some(number)
    };
    let interval = Duration::from_secs(1) / number(per_second)?.get();
    Rate::new(interval, number(burst)?)
}

fn network(text: &str) -> Option<IpNet> {
    let address = || text.parse::<IpAddr>().ok().map(Into::into);
    text.parse().ok().or_else(address)
}

#[cfg(test)]
mod tests {
    use std::{num::NonZeroU32, time::Duration};

    use order::Rate;

    use super::parse_rate;

    #[test]
    fn a_rate_is_a_number_with_or_without_a_burst() {
        let parsed = |text| parse_rate(text);
        let rate = |ms, burst| Rate::new(Duration::from_millis(ms), NonZeroU32::new(burst)?);
        assert_eq!(parsed("20"), rate(50, 20));
        assert_eq!(parsed("20/60"), rate(50, 60));
        assert_eq!(parsed("20 / 60"), rate(50, 60));
        for wrong in [
            "", "0", "-1", "20/0", "20/", "/20", "20/60/1", "1000001", "x",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}

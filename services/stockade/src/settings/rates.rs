//! The settings of the rate limits.

use std::{net::IpAddr, num::NonZeroU32, time::Duration};

use anyhow::Result;
use ipnet::IpNet;
use order::{ForwardedHeader, Rate, RateLimits};

use super::Layers;

/// Rates above this one are none.
const RATE_MAX: u32 = 1_000_000;

pub(super) fn read(layers: &Layers) -> Result<RateLimits> {
    Ok(RateLimits {
        buyer: rate(layers, "rate_per_buyer")?,
        peer: rate(layers, "rate_per_peer")?,
        exempt_items: list(
            layers,
            "rate_exempt_items",
            "item ids, comma-separated",
            |text| text.parse().ok(),
        )?,
        exempt_peers: networks(layers, "rate_exempt_peers")?,
        trusted_proxies: networks(layers, "trusted_proxies")?,
        forwarded_header: layers.parse("forwarded_header", ForwardedHeader::EXPECTED)?,
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

fn networks(layers: &Layers, key: &str) -> Result<Vec<IpNet>> {
    let expected = "addresses or networks, comma-separated, such as 10.0.0.0/8,fd00::/8";
    list(layers, key, expected, |text| {
        let address = || text.parse::<IpAddr>().ok().map(Into::into);
        text.parse().ok().or_else(address)
    })
}

fn list<T>(
    layers: &Layers,
    key: &str,
    expected: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>> {
    let Some(text) = layers.text(key) else {
        return Ok(Vec::new());
    };
    text.split(',')
        .map(|entry| parse(entry.trim()))
        .collect::<Option<_>>()
        .ok_or_else(|| layers.wrong(key, expected))
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

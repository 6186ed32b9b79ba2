//! Numbers, prices and times as people read them.

use domain::{Item, ItemState};
use jiff::Timestamp;

/// Currencies without a smaller unit.
const WHOLE_CURRENCIES: [&str; 5] = ["CLP", "ISK", "JPY", "KRW", "VND"];

/// With a comma between thousands.
pub(crate) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// An amount in the smallest unit of its currency.
pub(crate) fn price(amount: u64, currency: &str) -> String {
    if WHOLE_CURRENCIES.contains(&currency) {
        return format!("{currency} {}", number(amount));
    }
    format!("{currency} {}.{:02}", number(amount / 100), amount % 100)
}

/// A time in UTC, to the second.
pub(crate) fn time(at: Timestamp) -> String {
    let seconds = Timestamp::from_second(at.as_second()).unwrap_or(at);
    seconds.to_string().replace('T', " ").replace('Z', " UTC")
}

/// From `now` to `then`: `2 d 03:04:05`.
pub(crate) fn time_until(now: Timestamp, then: Timestamp) -> String {
    let seconds = (then.as_second() - now.as_second()).max(0);
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    match days {
        0 => clock,
        days => format!("{days} d {clock}"),
    }
}

/// What happens next to an item.
pub(crate) fn next_event(item: &Item, now: Timestamp) -> String {
    let window = item.window;
    match (item.state, window.opens_at, window.closes_at) {
        (ItemState::Archived, _, _) => "Archived".into(),
        (ItemState::Closed, _, _) => "The sale has ended".into(),
        (_, _, Some(at)) if at <= now => "The window has ended".into(),
        (_, Some(at), _) if at > now => format!("Opens in {}", time_until(now, at)),
        (ItemState::Paused, _, _) => "Paused".into(),
        (_, _, Some(at)) => format!("Closes in {}", time_until(now, at)),
        _ => "No end is set".into(),
    }
}

/// Whether buyers can order the item now, if there are units.
pub(crate) fn sells(item: &Item, now: Timestamp) -> bool {
    let window = item.window;
    item.state == ItemState::Open
        && window.opens_at.is_none_or(|at| at <= now)
        && window.closes_at.is_none_or(|at| now < at)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{number, price, time, time_until};

    #[test]
    fn numbers_and_prices_are_grouped() {
        for (value, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!(price(149_905, "CNY"), "CNY 1,499.05");
        assert_eq!(price(1500, "JPY"), "JPY 1,500");
    }

    #[test]
    fn a_countdown_ends_at_zero() {
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(time_until(at(0), at(3 * 86_400 + 3661)), "3 d 01:01:01");
        assert_eq!(time_until(at(10), at(5)), "00:00:00");
        assert_eq!(time(at(0)), "1970-01-01 00:00:00 UTC");
    }
}

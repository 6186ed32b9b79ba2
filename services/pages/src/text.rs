//! Numbers, prices and times as people read them.

use std::time::Duration;

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

/// A time as people say it: `340 ms`, `12 s`, `5 min`, `3 h 20 min`, `4 d 3 h`.
pub(crate) fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 => format!("{} ms", time.as_millis()),
        1..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// A size: `512 B`, `1.5 KiB`, `20 MiB`, `1.2 GiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..1024 => return format!("{bytes} B"),
        1024..1_048_576 => (10, "KiB"),
        1_048_576..1_073_741_824 => (20, "MiB"),
        _ => (30, "GiB"),
    };
    let tenths = (u128::from(bytes) * 10) >> unit;
    match tenths {
        100.. => format!("{} {name}", tenths / 10),
        _ => format!("{}.{} {name}", tenths / 10, tenths % 10),
    }
}

/// The next wave of units that is still to come.
fn next_wave(item: &Item, now: Timestamp) -> Option<String> {
    let waves = item.waves.iter().filter(|wave| !wave.is_added);
    let wave = waves.min_by_key(|wave| wave.at)?;
    Some(format!(
        "{} more units in {}",
        number(wave.units),
        time_until(now, wave.at)
    ))
}

/// What happens next to an item, and when its next wave comes.
pub(crate) fn next_events(item: &Item, now: Timestamp) -> String {
    let next = next_event(item, now);
    match next_wave(item, now).filter(|_| item.state != ItemState::Archived) {
        Some(wave) => format!("{next}; {wave}"),
        None => next,
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

    use std::time::Duration;

    use super::{bytes, number, price, span, time, time_until};

    #[test]
    fn times_and_sizes_have_the_unit_that_fits() {
        for (ms, text) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (59_999, "59 s"),
            (60_000, "1 min"),
            (12_000_000, "3 h 20 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(span(Duration::from_millis(ms)), text);
        }
        for (size, text) in [
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (20 << 20, "20 MiB"),
            ((1 << 30) + (1 << 28), "1.2 GiB"),
        ] {
            assert_eq!(bytes(size), text);
        }
    }

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

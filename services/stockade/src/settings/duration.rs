//! Long durations, as a number and a unit: `30d`.

use std::time::Duration;

/// What a value must look like.
pub(super) const EXPECTED: &str = "a whole number and a unit, s, m, h or d, such as 30d";

/// Reads a duration. `None`: it has another form.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    let number: u64 = number.parse().ok()?;
    number.checked_mul(seconds).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::parse;

    #[test]
    fn a_duration_is_a_number_and_a_unit() {
        for (text, seconds) in [
            ("0s", 0),
            ("90s", 90),
            ("15m", 900),
            ("2h", 7200),
            ("30d", 2_592_000),
        ] {
            assert_eq!(parse(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        for text in [
            "",
            "d",
            "30",
            "30 d",
            "-1d",
            "1.5h",
            "30x",
            "3é",
            "99999999999999999999d",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}

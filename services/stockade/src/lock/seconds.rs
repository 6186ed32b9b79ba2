//! Durations on the command line: seconds, or a number with a unit.

use std::{fmt, time::Duration};

/// `90`, `1.5`, `1.5s`, `500ms`, `2m` or `1h`.
pub fn parse(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(
        text.find(|letter: char| letter.is_ascii_alphabetic())
            .unwrap_or(text.len()),
    );
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(expected()),
    };
    let number: f64 = number.parse().map_err(|_| expected())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| expected())
}

fn expected() -> String {
    "expected seconds such as 10 or 0.5, or a duration such as 500ms, 10s, 2m".into()
}

/// Displays a duration in seconds with one decimal.
pub struct Seconds(pub Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} s", self.0.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::parse;

    #[test]
    fn a_time_is_seconds_or_has_a_unit() {
        let table = [
            ("0", 0),
            ("10", 10_000),
            ("0.5", 500),
            ("1s", 1000),
            ("1.5s", 1500),
            ("500ms", 500),
            ("2m", 120_000),
            ("1h", 3_600_000),
        ];
        for (text, ms) in table {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for wrong in [
            "", "s", "soon", "-1", "1d", "1 s", "nan", "inf", "1e30", "1,5", "ms",
        ] {
            assert!(
                parse(wrong).is_err_and(|error| error.contains("expected seconds")),
                "{wrong}"
            );
        }
    }
}

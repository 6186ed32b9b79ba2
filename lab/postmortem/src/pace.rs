//! Speed of a run. All times of a run are scaled by the same factor: a lease of 10 s and a stall of
//! 30 s keep their ratio.

use std::{fmt, str::FromStr, time::Duration};

/// Ratio of scenario time to real time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace(f64);

/// Highest speed at which timings are still meaningful: 1 ms of a server is 0.1 s of scenario time.
const SPEED_MAX: f64 = 100.0;

impl Pace {
    /// The pace of a case that cannot be scaled.
    pub const REAL_TIME: Self = Self(1.0);

    /// Creates a pace from 1 (real time) to 100.
    pub fn new(speed: f64) -> Option<Self> {
        (1.0..=SPEED_MAX).contains(&speed).then_some(Self(speed))
    }

    /// Returns the ratio of scenario time to real time.
    pub fn speed(self) -> f64 {
        self.0
    }

    /// Returns a quarter of the speed, or none at real time.
    pub fn slower(self) -> Option<Self> {
        (self.0 > 1.0).then(|| Self((self.0 / 4.0).max(1.0)))
    }

    /// Converts scenario time to real time.
    pub fn real(self, scenario: Duration) -> Duration {
        scenario.div_f64(self.0)
    }

    /// Converts real time to scenario time.
    pub fn scenario(self, real: Duration) -> Duration {
        real.mul_f64(self.0)
    }

    /// Converts scenario time to real milliseconds, at least 1, for servers.
    pub fn real_ms(self, scenario: Duration) -> u64 {
        u64::try_from(self.real(scenario).as_millis())
            .unwrap_or(u64::MAX)
            .max(1)
    }

    /// Waits for this long in scenario time.
    pub async fn sleep(self, scenario: Duration) {
        tokio::time::sleep(self.real(scenario)).await;
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Pace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse()
            .ok()
            .and_then(Self::new)
            .ok_or_else(|| format!("expected a number from 1 (real time) to {SPEED_MAX}"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Pace;

    #[test]
    fn a_stall_of_30_s_takes_1_5_s_at_speed_20() {
        let pace: Pace = "20".parse().unwrap();
        assert_eq!(
            pace.real(Duration::from_secs(30)),
            Duration::from_millis(1500)
        );
        assert_eq!(
            pace.scenario(Duration::from_millis(1500)),
            Duration::from_secs(30)
        );
        assert_eq!(pace.real_ms(Duration::from_millis(1)), 1);
    }

    #[test]
    fn a_retry_runs_at_a_quarter_of_the_speed_but_not_below_real_time() {
        let slower = |speed| Pace::new(speed).unwrap().slower().map(Pace::speed);
        assert_eq!(
            [slower(20.0), slower(3.0), slower(1.0)],
            [Some(5.0), Some(1.0), None]
        );
    }

    #[test]
    fn speeds_out_of_range_are_refused() {
        for text in ["0", "0.5", "-1", "101", "NaN", "fast"] {
            assert!(text.parse::<Pace>().is_err(), "{text}");
        }
    }
}

//! How fast the story is told. Whatever the speed, one run scales all its times together: a lease of 10 s and a stall of 30 s stay one to three.

use std::{fmt, str::FromStr, time::Duration};

/// Story seconds in a real second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace(f64);

/// As fast as the timings still mean something: 1 ms of a server is 0.1 s of the story.
const MOST: f64 = 100.0;

impl Pace {
    /// From 1 (the real thing) to 100.
    pub fn new(speed: f64) -> Option<Self> {
        (1.0..=MOST).contains(&speed).then_some(Self(speed))
    }

    /// Story seconds in a real second.
    pub fn speed(self) -> f64 {
        self.0
    }

    /// A quarter of it. `None`: it is slow enough.
    pub fn slower(self) -> Option<Self> {
        (self.0 > 1.0).then(|| Self((self.0 / 4.0).max(1.0)))
    }

    /// How long this takes here.
    pub fn real(self, story: Duration) -> Duration {
        story.div_f64(self.0)
    }

    /// How long that was in the story.
    pub fn story(self, real: Duration) -> Duration {
        real.mul_f64(self.0)
    }

    /// The same in milliseconds, for servers: at least 1.
    pub fn real_ms(self, story: Duration) -> u64 {
        u64::try_from(self.real(story).as_millis())
            .unwrap_or(u64::MAX)
            .max(1)
    }

    /// Waits for so long a time of the story.
    pub async fn sleep(self, story: Duration) {
        tokio::time::sleep(self.real(story)).await;
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
            .ok_or_else(|| format!("expected a number from 1 (the real thing) to {MOST}"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Pace;

    #[test]
    fn a_stall_of_half_a_minute_takes_a_second_and_a_half_at_twenty() {
        let pace: Pace = "20".parse().unwrap();
        assert_eq!(
            pace.real(Duration::from_secs(30)),
            Duration::from_millis(1500)
        );
        assert_eq!(
            pace.story(Duration::from_millis(1500)),
            Duration::from_secs(30)
        );
        assert_eq!(pace.real_ms(Duration::from_millis(1)), 1);
    }

    #[test]
    fn what_is_told_again_is_told_slower_until_it_is_the_real_thing() {
        let slower = |speed| Pace::new(speed).unwrap().slower().map(Pace::speed);
        assert_eq!(
            [slower(20.0), slower(3.0), slower(1.0)],
            [Some(5.0), Some(1.0), None]
        );
    }

    #[test]
    fn a_speed_that_means_nothing_is_refused() {
        for text in ["0", "0.5", "-1", "101", "NaN", "fast"] {
            assert!(text.parse::<Pace>().is_err(), "{text}");
        }
    }
}

//! Bounds how often tokens can be guessed at the login.
//!
//! Only refused logins count, for each address and for all together, in windows of a minute. At a
//! bound no token is compared until the window ends, so a right guess is not told from a wrong one.
//! A window holds at most as many addresses as logins are refused in it.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

const WINDOW: Duration = Duration::from_secs(60);
/// More than an operator mistypes in a minute.
const REFUSALS_MAX_OF_ADDRESS: u32 = 10;
/// Those of ten addresses.
const REFUSALS_MAX: u32 = 100;

/// The logins that were refused lately.
#[derive(Default)]
pub(super) struct Throttle(Mutex<Option<Window>>);

struct Window {
    began: Instant,
    refused: u32,
    of_address: HashMap<IpAddr, u32>,
}

/// Too many logins were refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Throttled {
    /// Time until a token is compared again.
    pub wait: Duration,
}

impl Throttled {
    /// [`Throttled::wait`] in seconds, rounded up.
    pub(super) fn retry_after(&self) -> u64 {
        self.wait.as_secs() + u64::from(self.wait.subsec_nanos() > 0)
    }
}

impl Throttle {
    /// Compares a token that came from this address, and counts it if `compare` finds nothing.
    /// Logins take turns, so that those that arrive together are counted as well.
    pub(super) fn check<T>(
        &self,
        address: IpAddr,
        now: Instant,
        compare: impl FnOnce() -> Option<T>,
    ) -> Result<Option<T>, Throttled> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let window = match &mut *window {
            Some(window) if now.saturating_duration_since(window.began) < WINDOW => window,
            ended => ended.insert(Window::beginning(now)),
        };
        if window.is_full_for(address) {
            let passed = now.saturating_duration_since(window.began);
            return Err(Throttled {
                wait: WINDOW.saturating_sub(passed),
            });
        }
        let found = compare();
        if found.is_none() {
            window.count(address);
        }
        Ok(found)
    }
}

impl Window {
    fn beginning(began: Instant) -> Self {
        Self {
            began,
            refused: 0,
            of_address: HashMap::new(),
        }
    }

    fn is_full_for(&self, address: IpAddr) -> bool {
        let of_address = self.of_address.get(&address).copied();
        self.refused >= REFUSALS_MAX || of_address.unwrap_or(0) >= REFUSALS_MAX_OF_ADDRESS
    }

    fn count(&mut self, address: IpAddr) {
        self.refused += 1;
        *self.of_address.entry(address).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{IpAddr, Ipv4Addr},
        time::{Duration, Instant},
    };

    use super::{REFUSALS_MAX, REFUSALS_MAX_OF_ADDRESS, Throttle, Throttled, WINDOW};

    fn address(n: u32) -> IpAddr {
        Ipv4Addr::from_bits(n).into()
    }

    fn guess(throttle: &Throttle, of: u32, now: Instant) -> Result<Option<()>, Throttled> {
        throttle.check(address(of), now, || None)
    }

    fn log_in(throttle: &Throttle, of: u32, now: Instant) -> Result<Option<u8>, Throttled> {
        throttle.check(address(of), now, || Some(7))
    }

    #[test]
    fn an_address_that_guesses_waits_for_the_end_of_the_window_and_others_log_in() {
        let (throttle, began) = (Throttle::default(), Instant::now());
        for _ in 0..REFUSALS_MAX_OF_ADDRESS {
            assert_eq!(
                log_in(&throttle, 1, began),
                Ok(Some(7)),
                "it does not count"
            );
            assert_eq!(guess(&throttle, 1, began), Ok(None));
        }
        let later = began + Duration::from_millis(9_500);
        let wait = WINDOW - Duration::from_millis(9_500);
        let refused = throttle.check(address(1), later, || -> Option<()> {
            unreachable!("no token is compared")
        });
        assert_eq!(refused, Err(Throttled { wait }));
        assert_eq!(Throttled { wait }.retry_after(), 51);
        assert_eq!(log_in(&throttle, 2, later), Ok(Some(7)));
        assert_eq!(log_in(&throttle, 1, began + WINDOW), Ok(Some(7)));
        assert_eq!(
            guess(&throttle, 1, began + WINDOW),
            Ok(None),
            "a new window"
        );
    }

    #[test]
    fn guesses_of_many_addresses_have_a_bound_together_and_so_has_the_memory() {
        let (throttle, began) = (Throttle::default(), Instant::now());
        let compared = (0..100_000).filter(|n| guess(&throttle, *n, began).is_ok());
        assert_eq!(compared.count(), usize::try_from(REFUSALS_MAX).unwrap());
        assert!(log_in(&throttle, 200_000, began).is_err());
        let addresses = throttle
            .0
            .lock()
            .unwrap()
            .as_ref()
            .unwrap()
            .of_address
            .len();
        assert_eq!(addresses, usize::try_from(REFUSALS_MAX).unwrap());
        assert_eq!(log_in(&throttle, 1, began + WINDOW), Ok(Some(7)));
    }
}

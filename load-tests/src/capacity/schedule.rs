//! The schedule of an open loop, and a thread that starts each request on time whether or not
//! earlier ones have completed.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Requests at a fixed rate.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// Requests per second.
    pub rate: u64,
    /// Total number of requests.
    pub requests: u64,
}

impl Schedule {
    /// A schedule of this rate for `seconds`.
    pub fn new(rate: u64, seconds: u64) -> Self {
        Self {
            rate,
            requests: rate * seconds,
        }
    }

    /// The scheduled time of the request with this number, from 0, since the start.
    pub fn due(&self, number: u64) -> Duration {
        // A sum of rounded gaps would drift.
        Duration::from_nanos(
            u64::try_from(u128::from(number) * 1_000_000_000 / u128::from(self.rate))
                .unwrap_or(u64::MAX),
        )
    }

    /// Starts each request at its scheduled time, never earlier. If the thread was delayed, overdue
    /// requests start immediately, with their scheduled times. Blocks for as long as the schedule
    /// lasts, so it needs its own thread. `start` must not block.
    pub fn run(&self, started_at: Instant, mut start: impl FnMut(u64, Instant)) {
        for number in 0..self.requests {
            let due = started_at + self.due(number);
            // The timers of the operating system are finer than those of the runtime, which have a
            // resolution of a millisecond.
            if let Some(early) = due.checked_duration_since(Instant::now()) {
                thread::sleep(early);
            }
            start(number, due);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        thread,
        time::{Duration, Instant},
    };

    use super::Schedule;

    #[test]
    fn requests_are_scheduled_evenly_without_drift() {
        let schedule = Schedule::new(3, 1_000_000);
        assert_eq!(schedule.requests, 3_000_000);
        assert_eq!(schedule.due(0), Duration::ZERO);
        assert_eq!(schedule.due(1), Duration::from_nanos(333_333_333));
        assert_eq!(schedule.due(3_000_000), Duration::from_secs(1_000_000));
    }

    /// No request ever completes here, so a closed loop would send only the first.
    #[tokio::test]
    async fn requests_start_on_schedule_although_none_completes() {
        let schedule = Schedule::new(200, 1);
        let (handle, (sender, mut started)) = (
            tokio::runtime::Handle::current(),
            tokio::sync::mpsc::unbounded_channel(),
        );
        let started_at = Instant::now();
        let thread = thread::spawn(move || {
            schedule.run(started_at, |number, due| {
                let sender = sender.clone();
                drop(handle.spawn(async move {
                    sender.send((number, due, Instant::now())).unwrap();
                    std::future::pending::<()>().await;
                }));
            });
        });
        for expected in 0..schedule.requests {
            let (number, due, at) = started.recv().await.unwrap();
            assert_eq!(
                (number, due),
                (expected, started_at + schedule.due(expected))
            );
            assert!(at >= due, "request {number} started too early");
        }
        thread.join().unwrap();
        assert!(started_at.elapsed() >= schedule.due(schedule.requests - 1));
    }

    #[test]
    fn overdue_requests_start_immediately_with_their_scheduled_times() {
        let schedule = Schedule::new(100, 1);
        let mut starts = Vec::new();
        let started_at = Instant::now();
        schedule.run(started_at, |number, due| {
            if number == 10 {
                thread::sleep(Duration::from_millis(300));
            }
            starts.push((due, Instant::now()));
        });
        let dues: Vec<_> = starts
            .iter()
            .map(|(due, _)| due.duration_since(started_at))
            .collect();
        assert_eq!(
            dues,
            (0..100)
                .map(|number| schedule.due(number))
                .collect::<Vec<_>>(),
            "the schedule does not shift"
        );
        let (due, at) = starts[11];
        assert!(
            at.duration_since(due) >= Duration::from_millis(280),
            "the delay is visible in full"
        );
    }

    /// All requests are overdue. A thread that waited again would take an hour.
    #[test]
    fn overdue_requests_do_not_wait_again() {
        const HOUR: Duration = Duration::from_secs(3600);
        let schedule = Schedule::new(1, HOUR.as_secs());
        let started_at = Instant::now().checked_sub(2 * HOUR).unwrap();
        let (sender, ended) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let mut starts = 0;
            schedule.run(started_at, |_, due| {
                assert!(due.elapsed() >= HOUR, "the delay is visible in full");
                starts += 1;
            });
            sender.send(starts).unwrap();
        });
        let starts = ended.recv_timeout(testbed::timeout()).unwrap();
        assert_eq!(starts, schedule.requests);
    }
}

//! When each request is due, and a thread that starts it then, whatever has become of the earlier ones.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Requests at a fixed rate.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// Requests a second.
    pub rate: u64,
    /// Requests in all.
    pub requests: u64,
}

impl Schedule {
    /// This rate for so many seconds.
    pub fn new(rate: u64, seconds: u64) -> Self {
        Self {
            rate,
            requests: rate * seconds,
        }
    }

    /// When the request of this number, from 0, is due after the beginning.
    pub fn due(&self, number: u64) -> Duration {
        // Not a sum of rounded gaps, which would drift.
        Duration::from_nanos(
            u64::try_from(u128::from(number) * 1_000_000_000 / u128::from(self.rate))
                .unwrap_or(u64::MAX),
        )
    }

    /// Starts every request when it is due, and none earlier. If the thread was held up, those that are overdue start at once, each with the moment at
    /// which it was due. Takes as long as the schedule does, so it is for a thread of its own; `start` must return at once.
    pub fn run(&self, began: Instant, mut start: impl FnMut(u64, Instant)) {
        for number in 0..self.requests {
            let due = began + self.due(number);
            // The operating system's timers are finer than the runtime's, which are whole milliseconds.
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
    fn requests_are_due_at_even_distances_and_do_not_drift() {
        let schedule = Schedule::new(3, 1_000_000);
        assert_eq!(schedule.requests, 3_000_000);
        assert_eq!(schedule.due(0), Duration::ZERO);
        assert_eq!(schedule.due(1), Duration::from_nanos(333_333_333));
        assert_eq!(schedule.due(3_000_000), Duration::from_secs(1_000_000));
    }

    /// No request is ever answered here, so a closed loop would make only the first.
    #[tokio::test]
    async fn requests_start_when_they_are_due_although_none_is_answered() {
        let schedule = Schedule::new(200, 1);
        let (handle, (sender, mut started)) = (
            tokio::runtime::Handle::current(),
            tokio::sync::mpsc::unbounded_channel(),
        );
        let began = Instant::now();
        let thread = thread::spawn(move || {
            schedule.run(began, |number, due| {
                let sender = sender.clone();
                drop(handle.spawn(async move {
                    sender.send((number, due, Instant::now())).unwrap();
                    std::future::pending::<()>().await;
                }));
            });
        });
        for expected in 0..schedule.requests {
            let (number, due, at) = started.recv().await.unwrap();
            assert_eq!((number, due), (expected, began + schedule.due(expected)));
            assert!(at >= due, "request {number} came too early");
        }
        thread.join().unwrap();
        assert!(began.elapsed() >= schedule.due(schedule.requests - 1));
    }

    #[test]
    fn what_is_overdue_starts_at_once_and_knows_when_it_was_due() {
        let schedule = Schedule::new(100, 1);
        let mut starts = Vec::new();
        let began = Instant::now();
        schedule.run(began, |number, due| {
            if number == 10 {
                thread::sleep(Duration::from_millis(300));
            }
            starts.push((due, Instant::now()));
        });
        let dues: Vec<_> = starts
            .iter()
            .map(|(due, _)| due.duration_since(began))
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
            "the wait is seen in full"
        );
        assert!(
            starts[39].1.duration_since(starts[11].1) < Duration::from_millis(250),
            "what is overdue does not wait again"
        );
    }
}

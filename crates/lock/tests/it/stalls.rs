//! Tests that hold a short lease while the machine stands still.
//!
//! A machine that is suspended or overloaded may run no program for some seconds. Then the renewal
//! of a lease comes too late, and a test that counts on its lock fails, though nothing is wrong.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, resume_unwind},
    sync::{Arc, Mutex, Weak},
    thread,
    time::{Duration, Instant},
};

use futures::FutureExt;

use crate::support::{becomes, ms};

/// The pause between two ticks of a [`Watch`].
const TICK: Duration = ms(20);
/// How often a test is run again.
const REPEATS_MAX: u32 = 3;

/// Runs a test that counts on a lock with this lease. The test starts over if it fails after a
/// stall: a gap of more than a third of the lease in which this process did nothing.
///
/// Nothing is loosened where there was no stall: the first failure of the test is its result. The
/// same holds for a failure after the last repeat, stall or not. Each run makes its own names or
/// servers, because shared servers keep what an earlier run has left there.
pub async fn unless_stalled(lease: Duration, test: impl AsyncFn()) {
    let watched = async || {
        let watch = Watch::start();
        let ended = AssertUnwindSafe(test()).catch_unwind().await;
        (ended, watch.longest_gap(Instant::now()))
    };
    repeat_after_gaps(lease / 3, watched).await;
}

/// Runs a test in which no stall takes a lock. Its failure in a stall is a fault as well.
pub async fn once(_lease: Duration, test: impl AsyncFn()) {
    test().await;
}

/// Repeats an attempt that panicked, if its longest gap, which it returns, was longer than allowed.
async fn repeat_after_gaps(
    allowed: Duration,
    attempt: impl AsyncFn() -> (thread::Result<()>, Duration),
) {
    let mut repeats = 0;
    loop {
        let (Err(panic), gap) = attempt().await else {
            return;
        };
        if gap <= allowed || repeats == REPEATS_MAX {
            resume_unwind(panic);
        }
        repeats += 1;
        eprintln!(
            "the machine stood still for {gap:?}, and {allowed:?} are allowed: \
             repeat {repeats} of {REPEATS_MAX}"
        );
    }
}

/// A clock that ticks while a test runs, in a thread of its own. What keeps the runtime alone from its
/// work may be a fault of the lock, and is no stall.
struct Watch(Arc<Mutex<Ticks>>);

impl Watch {
    fn start() -> Self {
        let watch = Self(Arc::new(Mutex::new(Ticks::since(Instant::now()))));
        let ticks = Arc::downgrade(&watch.0);
        thread::spawn(move || {
            while tick(&ticks) {
                thread::sleep(TICK);
            }
        });
        watch
    }

    fn longest_gap(&self, now: Instant) -> Duration {
        self.0.lock().unwrap().longest_gap(now)
    }
}

/// Notes a tick, unless the watch has ended.
fn tick(ticks: &Weak<Mutex<Ticks>>) -> bool {
    let Some(ticks) = ticks.upgrade() else {
        return false;
    };
    ticks.lock().unwrap().tick(Instant::now());
    true
}

/// When a clock ticked last, and by how much a tick of it was late at the most.
struct Ticks {
    last: Instant,
    latest_by: Duration,
}

impl Ticks {
    fn since(start: Instant) -> Self {
        Self {
            last: start,
            latest_by: Duration::ZERO,
        }
    }

    fn tick(&mut self, now: Instant) {
        self.latest_by = self.longest_gap(now);
        self.last = now;
    }

    /// The next tick counts as well: a test may fail before its clock has felt the stall.
    fn longest_gap(&self, now: Instant) -> Duration {
        let since_last = now.saturating_duration_since(self.last);
        self.latest_by.max(since_last.saturating_sub(TICK))
    }
}

#[tokio::test]
async fn a_test_that_fails_in_a_stall_is_repeated() {
    let runs = Cell::new(0);
    let fails_once = async || {
        runs.set(runs.get() + 1);
        let ended: thread::Result<()> = match runs.get() {
            1 => Err(Box::new("the lease is over")),
            _ => Ok(()),
        };
        (ended, ms(501))
    };
    repeat_after_gaps(ms(500), fails_once).await;
    assert_eq!(runs.get(), 2);
}

/// How often a test runs that fails each time, in such gaps, where half a second is allowed.
async fn runs_of_a_failing_test(gap: Duration) -> u32 {
    let runs = Cell::new(0);
    let fails = async || {
        runs.set(runs.get() + 1);
        let ended: thread::Result<()> = Err(Box::new(runs.get()));
        (ended, gap)
    };
    let repeated = AssertUnwindSafe(repeat_after_gaps(ms(500), fails));
    let failure = repeated.catch_unwind().await.unwrap_err();
    let failed_run = *failure.downcast::<u32>().unwrap();
    assert_eq!(failed_run, runs.get(), "the last run says why it failed");
    failed_run
}

#[tokio::test]
async fn a_test_that_fails_without_a_stall_is_not_repeated() {
    assert_eq!(runs_of_a_failing_test(Duration::ZERO).await, 1);
    assert_eq!(runs_of_a_failing_test(ms(500)).await, 1);
}

#[tokio::test]
async fn a_test_that_fails_in_every_stall_fails_in_the_end() {
    assert_eq!(runs_of_a_failing_test(ms(501)).await, 1 + REPEATS_MAX);
}

#[test]
fn a_gap_is_what_a_tick_is_late_and_the_longest_one_stays() {
    let start = Instant::now();
    let mut ticks = Ticks::since(start);
    ticks.tick(start + TICK);
    assert_eq!(ticks.longest_gap(start + 2 * TICK), Duration::ZERO);
    let late = start + 2 * TICK + ms(500);
    ticks.tick(late);
    ticks.tick(late + TICK);
    assert_eq!(ticks.longest_gap(late + TICK), ms(500));
    assert_eq!(ticks.longest_gap(late + 2 * TICK + ms(700)), ms(700));
}

/// Otherwise each test would be one long stall.
#[tokio::test]
async fn the_clock_ticks_while_a_test_runs() {
    let watch = Watch::start();
    let last = || watch.0.lock().unwrap().last;
    for _ in 0..2 {
        let seen = last();
        becomes("the next tick", async || last() > seen).await;
    }
}

//! Time limits of futures: with a timer of their own, or with one that a connection keeps.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep_until};

/// Limits how long a future may take.
pub(crate) trait Timer: Sync {
    /// Runs `work`, which is pinned because moving it here would take its space twice. `None`: it
    /// took longer than `time`.
    fn within<W: Future + Send>(
        &self,
        time: Duration,
        work: Pin<&mut W>,
    ) -> impl Future<Output = Option<W::Output>> + Send;
}

/// A timer for each future.
pub(crate) struct OwnTimer;

impl Timer for OwnTimer {
    async fn within<W>(&self, time: Duration, work: Pin<&mut W>) -> Option<W::Output>
    where
        W: Future + Send,
    {
        tokio::time::timeout(time, work).await.ok()
    }
}

/// A timer that the limits of one task share, one after another or one within another.
///
/// Registering and cancelling a timer for each limit would cost more than reading the clock in the
/// rare case that it fires. The futures must be polled by the task and not by wakers of their own,
/// as `join_all` has them: the timer wakes the task that polled it last.
#[derive(Default)]
pub(crate) struct SharedTimer(Mutex<Option<Pin<Box<Sleep>>>>);

impl Timer for SharedTimer {
    async fn within<W>(&self, time: Duration, mut work: Pin<&mut W>) -> Option<W::Output>
    where
        W: Future + Send,
    {
        let until = Instant::now() + time;
        poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => self.poll_until(until, context).map(|()| None),
        })
        .await
    }
}

impl SharedTimer {
    /// Wakes the task no later than `until`. Ready once it has passed.
    pub(crate) fn poll_until(&self, until: Instant, context: &mut Context<'_>) -> Poll<()> {
        let mut timer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sleep = timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if sleep.deadline() > until {
            // An earlier limit had more time.
            sleep.as_mut().reset(until);
        }
        while sleep.as_mut().poll(context).is_ready() {
            if Instant::now() >= until {
                return Poll::Ready(());
            }
            // The timer was set for an earlier limit, or for one within this one.
            sleep.as_mut().reset(until);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, pin::pin, time::Duration};

    use tokio::time::{Instant, sleep};

    use super::{SharedTimer, Timer};

    const HOUR: Duration = Duration::from_secs(3600);
    const SHORT: Duration = Duration::from_millis(100);

    #[tokio::test]
    async fn limits_share_one_timer_and_each_has_its_full_time() {
        let timer = SharedTimer::default();
        for _ in 0..2 {
            let work = pin!(sleep(SHORT * 2));
            assert!(timer.within(HOUR, work).await.is_some());
        }
        let began = Instant::now();
        assert!(timer.within(SHORT, pin!(pending::<()>())).await.is_none());
        assert!(began.elapsed() >= SHORT);
        let began = Instant::now();
        assert!(
            timer
                .within(SHORT * 2, pin!(pending::<()>()))
                .await
                .is_none()
        );
        assert!(began.elapsed() >= SHORT * 2);
    }

    #[tokio::test]
    async fn a_limit_after_one_that_had_more_time_has_its_own() {
        let timer = SharedTimer::default();
        assert!(timer.within(HOUR, pin!(sleep(SHORT))).await.is_some());
        assert_eq!(timer.within(SHORT, pin!(pending::<()>())).await, None);
    }

    #[tokio::test]
    async fn a_limit_within_another_ends_first_and_the_outer_one_still_holds() {
        let (timer, began) = (SharedTimer::default(), Instant::now());
        let work = async {
            let inner = timer.within(SHORT, pin!(pending::<()>())).await;
            assert!(inner.is_none() && began.elapsed() >= SHORT);
            // The inner limit may also be the later one.
            timer.within(HOUR, pin!(pending::<()>())).await
        };
        assert_eq!(timer.within(SHORT * 3, pin!(work)).await, None);
        assert!(began.elapsed() >= SHORT * 3);
    }
}

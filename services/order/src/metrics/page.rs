//! The page of metrics: rendered once a second at most, however many clients ask.
//!
//! A rendering is dear. The system lists every open descriptor of the process, and a large sale has
//! ten thousand connections.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use metrics_process::Collector;
use tokio::sync::Mutex;

use super::Exporter;

/// How long a rendering is served after it was made.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// The metrics in the text format, with those of the process.
#[derive(Clone)]
pub(crate) struct Page {
    render: Arc<dyn Fn() -> String + Send + Sync>,
    fresh_for: Duration,
    last: Arc<Mutex<Option<Rendering>>>,
}

struct Rendering {
    text: Bytes,
    made: Instant,
}

impl Page {
    pub(crate) fn new(exporter: Exporter) -> Self {
        Self::of(FRESH_FOR, move || {
            Collector::default().collect();
            exporter.render()
        })
    }

    fn of(fresh_for: Duration, render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self {
            render: Arc::new(render),
            fresh_for,
            last: Arc::default(),
        }
    }

    /// The last rendering while it is fresh, or else a new one. Clients that ask meanwhile wait for
    /// it.
    pub(crate) async fn text(&self) -> Bytes {
        let mut last = Arc::clone(&self.last).lock_owned().await;
        if let Some(rendering) = &*last
            && rendering.made.elapsed() < self.fresh_for
        {
            return rendering.text.clone();
        }
        let render = Arc::clone(&self.render);
        // A thread that may block. It goes on when the client leaves, so that clients that ask and
        // leave cause no more renderings than others.
        let rendering = tokio::task::spawn_blocking(move || {
            let text = Bytes::from(render());
            *last = Some(Rendering {
                text: text.clone(),
                made: Instant::now(),
            });
            text
        });
        rendering.await.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicU32, Ordering},
            mpsc,
        },
        time::Duration,
    };

    use futures::{FutureExt, future::join_all};

    use super::Page;

    const HOUR: Duration = Duration::from_secs(3600);

    /// A page that shows how often it was rendered.
    fn counting(fresh_for: Duration) -> Page {
        let count = AtomicU32::new(0);
        Page::of(fresh_for, move || {
            (count.fetch_add(1, Ordering::Relaxed) + 1).to_string()
        })
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_flood_is_answered_with_one_rendering() {
        let page = counting(HOUR);
        let flood = (0..1000).map(|_| {
            let page = page.clone();
            tokio::spawn(async move { page.text().await })
        });
        for text in join_all(flood).await {
            assert_eq!(text.unwrap(), "1");
        }
        assert_eq!(page.text().await, "1");
    }

    #[tokio::test]
    async fn a_rendering_that_is_no_longer_fresh_is_replaced() {
        let page = counting(Duration::ZERO);
        for expected in ["1", "2", "3"] {
            assert_eq!(page.text().await, expected);
        }
    }

    #[tokio::test]
    async fn clients_that_leave_at_once_cause_no_further_rendering() {
        let (go_on, waiting) = mpsc::channel::<()>();
        let (waiting, count) = (std::sync::Mutex::new(waiting), Arc::new(AtomicU32::new(0)));
        let counted = Arc::clone(&count);
        let page = Page::of(HOUR, move || {
            let rendering = counted.fetch_add(1, Ordering::Relaxed) + 1;
            let _ = waiting.lock().unwrap().recv();
            rendering.to_string()
        });
        for _ in 0..100 {
            assert_eq!(page.text().now_or_never(), None, "it is being rendered");
        }
        drop(go_on);
        assert_eq!(page.text().await, "1");
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_rendering_that_panics_is_tried_again() {
        let count = AtomicU32::new(0);
        let page = Page::of(HOUR, move || {
            assert_ne!(count.fetch_add(1, Ordering::Relaxed), 0, "the first one");
            "metrics".into()
        });
        assert_eq!(page.text().await, "");
        assert_eq!(page.text().await, "metrics");
    }
}

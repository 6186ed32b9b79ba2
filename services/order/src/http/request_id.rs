//! Names requests, so that a response can be found in the logs of the service and of its callers.
//!
//! The header `X-Request-Id` of the request is the name; without one, or with one that does not
//! fit, the request gets a name of this process. The response has the same header.

use std::{
    cell::{Cell, OnceCell},
    pin::{Pin, pin},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use http::{HeaderMap, HeaderName, HeaderValue, Response};
use uuid::Uuid;

use super::{single::single, text::header_of};

const NAME: &str = "x-request-id";
const X_REQUEST_ID: HeaderName = HeaderName::from_static(NAME);
const LENGTH_MAX: usize = 128;

tokio::task_local! {
    static CURRENT: Current;
}

/// The request that this task answers.
struct Current {
    id: RequestId,
    /// Whether its body is awaited.
    is_reading: Cell<bool>,
    /// The same, where another task reads the body.
    elsewhere: OnceCell<Arc<AtomicBool>>,
}

impl Current {
    fn of(id: RequestId) -> Self {
        Self {
            id,
            is_reading: Cell::new(false),
            elsewhere: OnceCell::new(),
        }
    }

    fn note(&self, is_reading: bool) {
        self.is_reading.set(is_reading);
        if let Some(elsewhere) = self.elsewhere.get() {
            elsewhere.store(is_reading, Ordering::Relaxed);
        }
    }

    fn is_reading(&self) -> bool {
        let elsewhere = || {
            self.elsewhere
                .get()
                .map(|flag| flag.load(Ordering::Relaxed))
        };
        self.is_reading.get() || elsewhere() == Some(true)
    }

    /// The same request in another task.
    fn in_another_task(&self) -> Self {
        let flag = self.elsewhere.get_or_init(Arc::default);
        Self {
            elsewhere: OnceCell::from(Arc::clone(flag)),
            ..Self::of(self.id.clone())
        }
    }
}

/// Reads the body of the request that this task answers.
pub(crate) async fn reading<T>(read: impl Future<Output = T>) -> T {
    let note = |is_reading| CURRENT.try_with(|current| current.note(is_reading)).ok();
    note(true);
    let body = read.await;
    note(false);
    body
}

/// Whether this task waits for the body of its request.
pub(crate) fn is_reading() -> bool {
    CURRENT.try_with(Current::is_reading) == Ok(true)
}

/// `work` for another task, which answers the request of this task.
pub(crate) fn for_another_task<T>(
    work: impl Future<Output = T> + Send,
) -> impl Future<Output = T> + Send {
    let current = CURRENT.try_with(Current::in_another_task).ok();
    async move {
        match current {
            Some(current) => CURRENT.scope(current, work).await,
            None => work.await,
        }
    }
}

/// The name of a request.
#[derive(Clone)]
pub(crate) struct RequestId(HeaderValue);

impl RequestId {
    /// The name that the caller gave, or a new one. Two names are none.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let given = single(headers, NAME).ok().flatten();
        let given = given.filter(|value| is_name(value));
        given.cloned().map_or_else(Self::next, Self)
    }

    /// A random part for the process, and a number that rises. A random name for each request would
    /// cost as much as the check of its token.
    fn next() -> Self {
        static PROCESS: LazyLock<u32> = LazyLock::new(|| Uuid::new_v4().as_fields().0);
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Both numbers and a hyphen have at most 25 characters.
        let name = header_of::<25>(format_args!("{:08x}-{number:x}", *PROCESS));
        Self(name.unwrap_or(HeaderValue::from_static("-")))
    }

    /// Answers the request under its name, which the response gets.
    pub(crate) async fn name<B>(
        self,
        answer: Pin<&mut impl Future<Output = Response<B>>>,
    ) -> Response<B> {
        let mut answering = pin!(CURRENT.scope(Current::of(self), answer));
        let mut response = answering.as_mut().await;
        // The name is taken back: a copy would be one more allocation.
        if let Some(Current { id, .. }) = answering.take_value() {
            response.headers_mut().insert(X_REQUEST_ID, id.0);
        }
        response
    }

    /// The name of the request that this task answers. `None`: it answers none.
    pub(crate) fn current() -> Option<String> {
        let name = |current: &Current| current.id.0.to_str().map(str::to_owned).ok();
        CURRENT.try_with(name).ok().flatten()
    }
}

/// Letters, digits and a few marks: a name must not break a log line or a URI.
fn is_name(value: &HeaderValue) -> bool {
    let is_mark = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte);
    (1..=LENGTH_MAX).contains(&value.len()) && value.as_bytes().iter().all(is_mark)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use http::{HeaderMap, HeaderValue, Response};

    use super::{RequestId, X_REQUEST_ID, for_another_task, is_reading, reading};

    async fn named(given: Option<&'static str>) -> (String, String) {
        let given = given.map(|given| (X_REQUEST_ID, HeaderValue::from_static(given)));
        let headers: HeaderMap = given.into_iter().collect();
        let mut seen = String::new();
        let response = RequestId::of(&headers)
            .name(pin!(async {
                seen = RequestId::current().unwrap();
                Response::new(())
            }))
            .await;
        let sent = response.headers()[X_REQUEST_ID].to_str().unwrap();
        (seen, sent.to_owned())
    }

    #[tokio::test]
    async fn a_request_keeps_its_name_and_gets_one_if_it_has_none_that_fits() {
        assert_eq!(RequestId::current(), None);
        let (seen, sent) = named(Some("Shop-7.a_b:c")).await;
        assert_eq!((&*seen, &*sent), ("Shop-7.a_b:c", "Shop-7.a_b:c"));
        let long: &'static str = "x".repeat(129).leak();
        let mut names = std::collections::BTreeSet::new();
        for bad in [None, Some(""), Some("two words"), Some("a\"b"), Some(long)] {
            let (seen, sent) = named(bad).await;
            assert_eq!(seen, sent);
            assert!(seen.len() > 9 && names.insert(seen), "{bad:?}: {sent}");
        }
    }

    #[tokio::test]
    async fn a_request_with_two_names_gets_one() {
        let mut headers = HeaderMap::new();
        for name in ["shop-7", "shop-8"] {
            headers.append(X_REQUEST_ID, HeaderValue::from_static(name));
        }
        let response = RequestId::of(&headers)
            .name(pin!(async { Response::new(()) }))
            .await;
        let sent: Vec<_> = response.headers().get_all(X_REQUEST_ID).iter().collect();
        assert!(
            sent.len() == 1 && !sent[0].as_bytes().starts_with(b"shop"),
            "{sent:?}"
        );
    }

    #[tokio::test]
    async fn another_task_answers_under_the_same_name_and_its_reading_is_seen() {
        let (begin, begun) = tokio::sync::oneshot::channel::<()>();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let answer = pin!(async {
            let task = tokio::spawn(for_another_task(async {
                reading(async {
                    begin.send(()).unwrap();
                    ended.await.unwrap();
                })
                .await;
                RequestId::current()
            }));
            assert!(!is_reading());
            begun.await.unwrap();
            assert!(is_reading());
            end.send(()).unwrap();
            assert_eq!(task.await.unwrap(), RequestId::current());
            assert!(!is_reading());
            Response::new(())
        });
        RequestId::of(&HeaderMap::new()).name(answer).await;
    }
}

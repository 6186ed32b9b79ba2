//! The connection to a service: where it is, and how requests are sent and repeated.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use reqwest::redirect;
use tokio::time::{Instant, sleep};

use crate::{
    Admin, Buyer, Error, Item, Items, PaymentKey, PaymentProvider, Request, Response, RetryPolicy,
    Token, UnknownCause, attempts::Attempts,
};

/// Limit for one attempt. The service itself bounds a buyer's request by five seconds.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A service, which may have several instances. Clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    servers: Arc<Servers>,
    retry: RetryPolicy,
}

/// The settings of a [`Client`].
#[derive(Debug)]
pub struct ClientBuilder {
    servers: Vec<String>,
    attempt_timeout: Duration,
    connect_timeout: Duration,
    retry: RetryPolicy,
    http: Option<reqwest::Client>,
}

/// The result of a request, and how many attempts it took.
///
/// More than one attempt means that the earlier ones left the outcome open. The result is true for
/// all of them: it is a refusal only if no attempt was lost, or if the service itself has decided.
/// A request that is still on its way then is decided when it arrives.
#[derive(Debug)]
pub struct Sent {
    /// Number of times that the request was sent.
    pub attempts: u32,
    /// The response to the last attempt; only success statuses are `Ok`.
    pub result: Result<Response, Error>,
}

#[derive(Debug)]
struct Servers {
    urls: Vec<String>,
    next: AtomicUsize,
}

impl Client {
    /// A client of the service at `url` (`http://host:port`), with default settings.
    pub fn new(url: impl Into<String>) -> Result<Self, Error> {
        Self::builder([url.into()]).build()
    }

    /// A client of the service that has an instance at each of `urls`.
    ///
    /// Requests go to the instances in turn, so a repeat goes to another instance than the attempt
    /// before it.
    pub fn builder<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> ClientBuilder {
        let trim = |url: U| url.into().trim_end_matches('/').to_owned();
        ClientBuilder {
            servers: urls.into_iter().map(trim).collect(),
            attempt_timeout: ATTEMPT_TIMEOUT,
            connect_timeout: CONNECT_TIMEOUT,
            retry: RetryPolicy::default(),
            http: None,
        }
    }

    /// Makes calls as the buyer who owns `token`.
    pub fn buyer(&self, token: Token) -> Buyer {
        Buyer::new(self.clone(), token)
    }

    /// Makes calls as the admin. `token` is the service's `STOCKADE_ADMIN_TOKEN`.
    pub fn admin(&self, token: Token) -> Admin {
        Admin::new(self.clone(), token)
    }

    /// Reports payments. `key` holds the service's `STOCKADE_PAYMENT_SECRET`.
    pub fn payment_provider(&self, key: PaymentKey) -> PaymentProvider {
        PaymentProvider::new(self.clone(), key)
    }

    /// Shows an item as the public sees it.
    pub async fn item(&self, item: &str) -> Result<Item, Error> {
        self.call(&Request::item(item, None), Item::read).await
    }

    /// Shows up to 100 items as the public sees them, in one request.
    pub async fn items<I: AsRef<str>>(
        &self,
        items: impl IntoIterator<Item = I>,
    ) -> Result<Items, Error> {
        self.call(&Request::items(items), Items::read).await
    }

    /// Whether every instance reports that it is ready. Sends one request to each, without retries.
    pub async fn is_ready(&self) -> bool {
        for url in &self.servers.urls {
            let response = self.http.get(format!("{url}/readyz")).send().await;
            if !response.is_ok_and(|response| response.status().is_success()) {
                return false;
            }
        }
        true
    }

    /// The metrics of the next instance, in Prometheus's text format.
    pub async fn metrics(&self) -> Result<String, Error> {
        self.send(&Request::metrics()).await.result?.text()
    }

    /// The same client with another retry policy.
    pub fn with_retry(&self, retry: RetryPolicy) -> Self {
        Self {
            retry,
            ..self.clone()
        }
    }

    pub(crate) fn retry(&self) -> &RetryPolicy {
        &self.retry
    }

    /// The same client on another pool of connections, whose timeouts it adopts.
    pub fn with_http(&self, http: reqwest::Client) -> Self {
        Self {
            http,
            ..self.clone()
        }
    }

    /// Sends `request`, and repeats it while the outcome is unknown and the retry policy allows it.
    ///
    /// After an attempt that was lost, only a decision of the service ends the attempts.
    ///
    /// [`Buyer`], [`Admin`] and [`PaymentProvider`] are built on this. Use it directly if you need
    /// the number of attempts.
    pub async fn send(&self, request: &Request) -> Sent {
        let mut attempts = Attempts::new(request.reads());
        let read = |response: &Response| Ok(response.clone());
        let result = self.send_as(request, &mut attempts, read).await;
        Sent {
            attempts: attempts.count(),
            result,
        }
    }

    /// What `read` makes of the response to `request`. A response that it cannot read leaves a lost
    /// attempt unknown, whatever its status is: a proxy may have sent it.
    pub(crate) async fn call<T>(
        &self,
        request: &Request,
        read: impl Fn(&Response) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut attempts = Attempts::new(request.reads());
        self.send_as(request, &mut attempts, read).await
    }

    /// [`Client::call`] with attempts that the caller judges the parts of the response by.
    pub(crate) async fn send_as<T>(
        &self,
        request: &Request,
        attempts: &mut Attempts,
        read: impl Fn(&Response) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let deadline = Instant::now() + self.retry.deadline;
        loop {
            attempts.begin();
            let answer = self.send_once(request).await;
            let answer = answer.and_then(Response::into_success);
            let result = answer.and_then(|response| match attempts.has_lost() {
                true => response.of_the_service().and_then(|()| read(&response)),
                false => read(&response),
            });
            let error = match result {
                Ok(read) => return Ok(read),
                Err(error) => attempts.judge(error),
            };
            let pause = self
                .retry
                .pause_after(attempts.count(), error.retry_after());
            let is_late = Instant::now() + pause >= deadline;
            if !error.is_retryable() || is_late {
                return Err(error);
            }
            sleep(pause).await;
        }
    }

    /// Sends `request` once, and returns the response whatever its status is.
    ///
    /// An error means that there is no complete response ([`Error::OutcomeUnknown`]), or that the
    /// request was never sent ([`Error::InvalidInput`]).
    pub async fn send_once(&self, request: &Request) -> Result<Response, Error> {
        let transport = |error: reqwest::Error| match error.is_builder() {
            true => Error::InvalidInput {
                field: "url",
                expected: "an address such as http://127.0.0.1:8080",
            },
            false => Error::OutcomeUnknown {
                attempts: 1,
                cause: Box::new(UnknownCause::Transport(Arc::new(error))),
            },
        };
        let request = request.build(&self.http, self.servers.next())?;
        let response = request.send().await;
        Response::receive(response.map_err(transport)?)
            .await
            .map_err(transport)
    }
}

impl ClientBuilder {
    /// Limit for one attempt, from connecting to the last byte. Default: 10 seconds.
    #[must_use]
    pub fn attempt_timeout(self, attempt_timeout: Duration) -> Self {
        Self {
            attempt_timeout,
            ..self
        }
    }

    /// Limit for establishing a connection. Default: one second.
    #[must_use]
    pub fn connect_timeout(self, connect_timeout: Duration) -> Self {
        Self {
            connect_timeout,
            ..self
        }
    }

    /// How requests are repeated whose outcome is unknown.
    #[must_use]
    pub fn retry(self, retry: RetryPolicy) -> Self {
        Self { retry, ..self }
    }

    /// Uses this pool of connections and its timeouts, instead of a new one.
    #[must_use]
    pub fn http(self, http: reqwest::Client) -> Self {
        Self {
            http: Some(http),
            ..self
        }
    }

    /// The client. Fails without an address, or if the system offers no source of randomness or
    /// certificates to the HTTP library.
    pub fn build(self) -> Result<Client, Error> {
        if self.servers.is_empty() {
            return Err(Error::InvalidInput {
                field: "urls",
                expected: "the address of one instance at least",
            });
        }
        let http = match self.http {
            Some(http) => http,
            // The API has no redirects. One that a proxy invents must not carry a token elsewhere.
            None => reqwest::Client::builder()
                .timeout(self.attempt_timeout)
                .connect_timeout(self.connect_timeout)
                .redirect(redirect::Policy::none())
                .build()
                .map_err(|error| Error::Setup(Arc::new(error)))?,
        };
        let servers = Servers {
            urls: self.servers,
            next: AtomicUsize::new(0),
        };
        Ok(Client {
            http,
            servers: Arc::new(servers),
            retry: self.retry,
        })
    }
}

impl Servers {
    fn next(&self) -> &str {
        &self.urls[self.next.fetch_add(1, Ordering::Relaxed) % self.urls.len()]
    }
}

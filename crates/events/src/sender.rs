//! One signed request to a webhook.
//!
//! It follows no redirect and uses no proxy, and it connects only to addresses that it has checked
//! itself: the address that is resolved is the one that is connected to.

use std::{
    error::Error,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
    vec,
};

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{
        Client,
        connect::{HttpConnector, dns::Name},
    },
    rt::TokioExecutor,
};
use jiff::Timestamp;
use ledger::NewWebhook;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use tower::Service;

use crate::{CloudEvent, Secret, Target, TargetError, TargetPolicy, target::addresses};

/// A longer answer is not read; its connection is closed.
const ANSWER_BYTES_MAX: usize = 16 * 1024;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why an event was not delivered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The URL is not allowed.
    #[error("the URL is refused: {0}")]
    Target(#[from] TargetError),
    /// The stored secret is invalid.
    #[error("the webhook's secret cannot be read")]
    Secret,
    /// The receiver could not be reached, or did not answer.
    #[error("{0}")]
    Connection(String),
    /// The receiver did not answer in time.
    #[error("no answer within {0:?}")]
    NoAnswer(Duration),
    /// The receiver did not accept the event. Redirects are not followed.
    #[error("the receiver answered {0}")]
    Refused(StatusCode),
}

/// Sends events to webhooks. Copies share their connections.
#[derive(Clone)]
pub struct Sender {
    client: Client<HttpsConnector<HttpConnector<Resolver>>, Full<Bytes>>,
    policy: TargetPolicy,
    timeout: Duration,
}

impl Sender {
    /// A sender whose requests take `timeout` at most. It accepts the authorities that browsers
    /// trust, and those of the PEM file `authority`.
    pub fn new(
        policy: TargetPolicy,
        timeout: Duration,
        authority: Option<&[u8]>,
    ) -> io::Result<Self> {
        let mut tcp = HttpConnector::new_with_resolver(Resolver { policy });
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT.min(timeout)));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls(authority)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            policy,
            timeout,
        })
    }

    /// Sends the event once. Returns the status with which the receiver has accepted it.
    pub async fn send(
        &self,
        webhook: &NewWebhook,
        event: &CloudEvent,
    ) -> Result<StatusCode, SendError> {
        // The client looks up no host that is an address, so this check is its only one.
        let target = Target::parse(&webhook.url, self.policy)?;
        let request = request(&target, webhook, event)?;
        let status = tokio::time::timeout(self.timeout, self.answer(request))
            .await
            .unwrap_or(Err(SendError::NoAnswer(self.timeout)))?;
        status
            .is_success()
            .then_some(status)
            .ok_or(SendError::Refused(status))
    }

    /// The answer's status. Its body is read so that the connection can be used again.
    async fn answer(&self, request: Request<Full<Bytes>>) -> Result<StatusCode, SendError> {
        let answer = self.client.request(request).await;
        let answer = answer.map_err(|error| SendError::Connection(with_causes(&error)))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
        let _ = body.collect().await;
        Ok(status)
    }
}

fn tls(authority: Option<&[u8]>) -> io::Result<ClientConfig> {
    let roots = webpki_roots::TLS_SERVER_ROOTS.iter().cloned();
    let mut roots: RootCertStore = roots.collect();
    for certificate in CertificateDer::pem_slice_iter(authority.unwrap_or_default()) {
        let certificate = certificate.map_err(io::Error::other)?;
        roots.add(certificate).map_err(io::Error::other)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

fn request(
    target: &Target,
    webhook: &NewWebhook,
    event: &CloudEvent,
) -> Result<Request<Full<Bytes>>, SendError> {
    let secret: Secret = webhook.secret.parse().map_err(|_| SendError::Secret)?;
    let (body, seconds) = (event.to_json(), Timestamp::now().as_second());
    Request::post(target.as_str())
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::USER_AGENT, "stockade")
        .header("webhook-id", &event.id)
        .header("webhook-timestamp", seconds)
        .header(
            "webhook-signature",
            secret.sign(&event.id, seconds, body.as_bytes()),
        )
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| SendError::Connection(error.to_string()))
}

/// hyper's error alone says only "client error".
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Resolves names to addresses that are allowed.
#[derive(Clone)]
struct Resolver {
    policy: TargetPolicy,
}

impl Service<Name> for Resolver {
    type Response = vec::IntoIter<std::net::SocketAddr>;
    type Error = TargetError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, TargetError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), TargetError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, host: Name) -> Self::Future {
        let policy = self.policy;
        Box::pin(async move { Ok(addresses(host.as_str(), policy).await?.into_iter()) })
    }
}

//! A stream of NATS JetStream: a message for each event.

use std::{fmt::Display, sync::Arc, time::Duration};

use async_nats::{
    ConnectOptions, HeaderMap, ServerAddr,
    header::NATS_MESSAGE_ID,
    jetstream::{self, Context, context::PublishErrorKind, stream},
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};
use async_trait::async_trait;
use events::CloudEvent;
use redis::TlsCertificates;

use super::{Broker, CONTENT_TYPE, SinkError, routing_key};

/// Messages that the client buffers while it is not connected. There is one at a time, and the
/// repeats of it.
const BUFFERED_MAX: usize = 16;

/// Where the servers are, and what they demand.
pub(super) struct Access {
    /// Without user and password: the client logs them.
    servers: Vec<ServerAddr>,
    /// The user and password of the first URL that has them; a user alone is a token.
    user: Option<(String, Option<String>)>,
    /// A user's JWT and the seed that signs for it.
    credentials: Option<String>,
    tls: Option<ClientConfig>,
}

/// The stream.
pub(super) struct JetStream {
    access: Access,
    config: stream::Config,
    subject: String,
    /// Its client connects again by itself.
    context: Option<Context>,
}

impl Access {
    pub(super) fn new(
        urls: &[String],
        tls: Option<&TlsCertificates>,
        credentials: Option<&str>,
    ) -> Result<Self, SinkError> {
        let wrong = |_| SinkError::Url("nats://HOST:PORT or tls://HOST:PORT");
        let parse = |url: &str| url.parse::<ServerAddr>().map_err(wrong);
        let parsed: Vec<_> = urls
            .iter()
            .map(|url| parse(url))
            .collect::<Result<_, _>>()?;
        let servers = urls.iter().map(|url| parse(&without_user(url)));
        let user = parsed.iter().find_map(|server| {
            let password = server.password().map(decoded);
            Some((decoded(server.username()?), password))
        });
        let access = Self {
            servers: servers.collect::<Result<_, _>>()?,
            user,
            credentials: credentials.map(ToOwned::to_owned),
            tls: tls.map(client_config).transpose()?,
        };
        access.options()?;
        Ok(access)
    }

    fn options(&self) -> Result<ConnectOptions, SinkError> {
        let options = ConnectOptions::new();
        let mut options = match self.user.clone() {
            Some((user, Some(password))) => options.user_and_password(user, password),
            Some((token, None)) => options.token(token),
            None => options,
        };
        if let Some(credentials) = &self.credentials {
            let read = options.credentials(credentials);
            options = read.map_err(|_| SinkError::Credentials)?;
        }
        Ok(match &self.tls {
            Some(tls) => options.tls_client_config(tls.clone()),
            None => options,
        })
    }
}

/// Accepts the authorities of the system, as the client does by default, and this one.
fn client_config(tls: &TlsCertificates) -> Result<ClientConfig, SinkError> {
    let wrong = |error: &dyn Display| SinkError::Certificates(error.to_string());
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let authority = tls.root_cert.as_deref().unwrap_or_default();
    for certificate in CertificateDer::pem_slice_iter(authority) {
        let certificate = certificate.map_err(|error| wrong(&error))?;
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&error))?
        .with_root_certificates(roots);
    let Some(own) = &tls.client_tls else {
        return Ok(config.with_no_client_auth());
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&own.client_cert).collect();
    let key = PrivateKeyDer::from_pem_slice(&own.client_key).map_err(|error| wrong(&error))?;
    config
        .with_client_auth_cert(chain.map_err(|error| wrong(&error))?, key)
        .map_err(|error| wrong(&error))
}

impl JetStream {
    pub(super) fn open(access: Access, stream: &str, subject: &str, keep: Duration) -> Self {
        Self {
            access,
            config: stream::Config {
                name: stream.to_owned(),
                subjects: vec![format!("{subject}.>")],
                max_age: keep,
                ..stream::Config::default()
            },
            subject: subject.to_owned(),
            context: None,
        }
    }

    /// A stream that exists stays as its operator has made it.
    async fn connect(&self) -> Result<Context, SinkError> {
        let options = self.access.options()?;
        let options = options.name("stockade").client_capacity(BUFFERED_MAX);
        let client = options.connect(self.access.servers.clone()).await;
        let context = jetstream::new(client.map_err(|error| SinkError::broker(&error))?);
        let stream = context.get_or_create_stream(self.config.clone()).await;
        stream.map_err(|error| SinkError::broker(&error))?;
        Ok(context)
    }

    async fn send(&self, context: &Context, event: &CloudEvent) -> Result<(), PublishErrorKind> {
        let mut headers = HeaderMap::new();
        // JetStream drops a repeat with the same id that comes within its window.
        headers.insert(NATS_MESSAGE_ID, &*event.id);
        headers.insert("Content-Type", CONTENT_TYPE);
        let subject = format!("{}.{}", self.subject, routing_key(event));
        let sent = context.publish_with_headers(subject, headers, event.to_json().into());
        let acknowledged = sent.await.map_err(|error| error.kind())?;
        acknowledged.await.map_err(|error| error.kind())?;
        Ok(())
    }
}

#[async_trait]
impl Broker for JetStream {
    async fn publish(&mut self, events: &[CloudEvent]) -> Result<usize, SinkError> {
        let Some(first) = events.first() else {
            return Ok(0);
        };
        let context = match self.context.take() {
            Some(context) => context,
            None => self.connect().await?,
        };
        // Kept if the future is dropped: a client that reconnects cannot be stopped.
        self.context = Some(context.clone());
        let sent = self.send(&context, first).await;
        if sent == Err(PublishErrorKind::StreamNotFound) {
            self.context = None;
        }
        match sent {
            Ok(()) => Ok(1),
            Err(kind) => Err(SinkError::Broker(kind.to_string())),
        }
    }
}

/// The URL without user and password.
fn without_user(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, address))) => format!("{scheme}://{address}"),
        _ => url.to_owned(),
    }
}

/// The text behind `%40` and the like, which stand for characters that a URL cannot have there.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let byte = part.get(..2).map(|digits| u8::from_str_radix(digits, 16));
        match byte {
            Some(Ok(byte)) => {
                bytes.push(byte);
                bytes.extend_from_slice(&part.as_bytes()[2..]);
            }
            _ => {
                bytes.push(b'%');
                bytes.extend_from_slice(part.as_bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{decoded, without_user};

    #[test]
    fn an_address_has_no_password() {
        let table = [
            ("nats://127.0.0.1:4222", "nats://127.0.0.1:4222"),
            ("tls://shop:p%40ss@a:1", "tls://a:1"),
            ("nats://shop:p@ss@a:1", "nats://a:1"),
            ("nats://token@[::1]:1", "nats://[::1]:1"),
        ];
        for (url, expected) in table {
            assert_eq!(without_user(url), expected);
        }
    }

    #[test]
    fn a_password_may_have_any_character() {
        let table = [
            ("plain", "plain"),
            ("p%40ss%3Aword", "p@ss:word"),
            ("100%", "100%"),
            ("%zz%2", "%zz%2"),
            ("%C3%A4", "ä"),
        ];
        for (text, expected) in table {
            assert_eq!(decoded(text), expected);
        }
    }
}

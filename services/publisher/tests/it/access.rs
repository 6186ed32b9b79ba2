//! Brokers that demand credentials, or whose certificates a private authority signed.

#![cfg(all(feature = "nats", feature = "amqp"))]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_nats::{ConnectOptions, jetstream, rustls};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use lapin::{
    Connection, ConnectionProperties, ExchangeKind,
    options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions},
    types::FieldTable,
};
use nkeys::KeyPair;
use publisher::{PublisherSettings, SinkSettings};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa};
use redis::{ClientTlsConfig, TlsCertificates};
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::{Nats, RabbitMq, free_port};
use testkit::{Backend, eventually};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
};

use crate::env::{self, TestEnv};

/// A folder with `ca.pem`, and `server` and `client` with a certificate (`.pem`) and a key
/// (`.key`).
struct Certificates(TempDir);

impl Certificates {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| fs::write(folder.path().join(name), text).unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, "an authority");
        let key = rcgen::KeyPair::generate().unwrap();
        let authority = CertifiedIssuer::self_signed(params, key).unwrap();
        write("ca.pem", authority.pem());
        for name in ["server", "client"] {
            let key = rcgen::KeyPair::generate().unwrap();
            let params = CertificateParams::new(["127.0.0.1".into()]).unwrap();
            let certificate = params.signed_by(&key, &authority).unwrap();
            write(&format!("{name}.pem"), certificate.pem());
            write(&format!("{name}.key"), key.serialize_pem());
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn authority(&self) -> TlsCertificates {
        TlsCertificates {
            client_tls: None,
            root_cert: Some(fs::read(self.path("ca.pem")).unwrap()),
        }
    }

    fn authority_and_identity(&self) -> TlsCertificates {
        TlsCertificates {
            client_tls: Some(ClientTlsConfig {
                client_cert: fs::read(self.path("client.pem")).unwrap(),
                client_key: fs::read(self.path("client.key")).unwrap(),
            }),
            ..self.authority()
        }
    }
}

fn publishing_to(sink: SinkSettings) -> PublisherSettings {
    PublisherSettings {
        sinks: vec![sink],
        ..env::settings()
    }
}

fn jetstream(url: &str, tls: Option<TlsCertificates>, credentials: Option<String>) -> SinkSettings {
    SinkSettings::Nats {
        urls: vec![url.to_owned()],
        tls,
        credentials,
        stream: "SHOP".into(),
        subject: "shop".into(),
        keep: Duration::from_secs(86_400),
    }
}

/// Messages of the stream. `None`: it does not exist.
async fn messages(url: &str, options: ConnectOptions) -> Option<u64> {
    let client = options.connect(url).await.unwrap();
    let mut stream = jetstream::new(client).get_stream("SHOP").await.ok()?;
    Some(stream.info().await.unwrap().state.messages)
}

/// A port that forwards to a broker, and counts the connections.
struct Gate {
    port: u16,
    connections: Arc<AtomicUsize>,
}

impl Gate {
    async fn to(broker: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let address = ("127.0.0.1", broker);
                    let mut server = TcpStream::connect(address).await.unwrap();
                    // It ends with an error when either side cuts the connection.
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self { port, connections }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Publishes three events to each sink through the gate: those before the last get none.
async fn only_the_last_publishes(
    env: &TestEnv,
    gate: &Gate,
    sinks: Vec<SinkSettings>,
    count: impl AsyncFn() -> Option<u64>,
) {
    let item = env.create("vase").await;
    env.change(&item, 2).await;
    env.ids(&item, 3).await;
    let last = sinks.len() - 1;
    for (at, sink) in sinks.into_iter().enumerate() {
        assert!(sink.check().is_ok());
        let before = gate.connections();
        let publisher = env.publish(publishing_to(sink)).await;
        if at == last {
            eventually("all events", async || count().await == Some(3)).await;
        } else {
            // The attempt before each further connection has failed.
            eventually("three attempts", async || gate.connections() >= before + 3).await;
            assert_eq!(count().await.unwrap_or(0), 0, "sink {at}");
        }
        publisher.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_is_reached_with_the_certificates_of_a_private_authority() {
    env::run(Backend::Sqlite, async |env: Arc<TestEnv>| {
        // As `stockade` does. The client has no provider of its own.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let files = Certificates::new();
        let server = Nats::builder()
            .config("tls", "true")
            .config("tlscert", &files.text("server.pem"))
            .config("tlskey", &files.text("server.key"))
            .config("tlsverify", "true")
            .config("tlscacert", &files.text("ca.pem"));
        let server = server.start().await.unwrap();
        let url = server.url().replace("nats:", "tls:");
        let gate = Gate::to(server.port()).await;
        let through_gate = format!("tls://127.0.0.1:{}", gate.port);
        let sinks = [
            None,
            Some(files.authority()),
            Some(files.authority_and_identity()),
        ];
        let sinks = sinks.map(|tls| jetstream(&through_gate, tls, None));
        only_the_last_publishes(&env, &gate, sinks.to_vec(), async || {
            let options = ConnectOptions::new()
                .add_root_certificates(files.path("ca.pem"))
                .add_client_certificate(files.path("client.pem"), files.path("client.key"));
            messages(&url, options).await
        })
        .await;
    })
    .await;
}

/// A JWT of NATS, by which `issuer` says who `subject` is.
fn jwt(issuer: &KeyPair, subject: &KeyPair, mut nats: Value, kind: &str) -> String {
    nats["type"] = json!(kind);
    nats["version"] = json!(2);
    let claims = json!({
        "jti": subject.public_key(),
        "iat": jiff::Timestamp::now().as_second(),
        "iss": issuer.public_key(),
        "name": kind,
        "sub": subject.public_key(),
        "nats": nats,
    });
    let encoded = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let header = json!({ "typ": "JWT", "alg": "ed25519-nkey" });
    let signed = format!("{}.{}", encoded(&header), encoded(&claims));
    let signature = issuer.sign(signed.as_bytes()).unwrap();
    format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
}

fn credentials(user: &KeyPair, jwt: &str) -> String {
    let seed = user.seed().unwrap();
    format!(
        "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
}

/// Writes the configuration of a server that knows one account. Returns its path.
fn configured(folder: &Path, operator: &KeyPair, account: &KeyPair) -> PathBuf {
    let unlimited = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true,
        "conn": -1, "leaf": -1, "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
    });
    let (system, id) = (KeyPair::new_account(), account.public_key());
    let account = jwt(operator, account, json!({ "limits": unlimited }), "account");
    let limits = json!({ "limits": { "subs": -1, "data": -1, "payload": -1, "conn": -1 } });
    let system_jwt = jwt(operator, &system, limits, "account");
    let operator = jwt(operator, operator, json!({}), "operator");
    let system = system.public_key();
    let text = format!(
        "operator: {operator}\nsystem_account: {system}\nresolver: MEMORY\n\
         resolver_preload: {{\n{id}: {account}\n{system}: {system_jwt}\n}}\n"
    );
    let path = folder.join("nats.conf");
    fs::write(&path, text).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_is_reached_with_a_credentials_file() {
    env::run(Backend::Sqlite, async |env: Arc<TestEnv>| {
        let folder = tempfile::tempdir().unwrap();
        let (operator, account) = (KeyPair::new_operator(), KeyPair::new_account());
        let path = configured(folder.path(), &operator, &account);
        let server = Nats::builder().config("config", &path.display().to_string());
        let server = server.start().await.unwrap();
        let unlimited = json!({ "subs": -1, "data": -1, "payload": -1 });
        let of_issuer = |issuer: &KeyPair| {
            let user = KeyPair::new_user();
            let jwt = jwt(issuer, &user, unlimited.clone(), "user");
            credentials(&user, &jwt)
        };
        let known = of_issuer(&account);
        let sinks = [
            None,
            Some(of_issuer(&KeyPair::new_account())),
            Some(known.clone()),
        ];
        let url = server.url();
        let gate = Gate::to(server.port()).await;
        let through_gate = format!("nats://127.0.0.1:{}", gate.port);
        let sinks = sinks.map(|credentials| jetstream(&through_gate, None, credentials));
        only_the_last_publishes(&env, &gate, sinks.to_vec(), async || {
            let options = ConnectOptions::new().credentials(&known).unwrap();
            messages(&url, options).await
        })
        .await;
    })
    .await;
}

#[test]
fn credentials_and_certificates_that_cannot_be_read_are_refused_at_once() {
    let user = KeyPair::new_user();
    let seed = user.seed().unwrap();
    for text in [
        "",
        "hunter2",
        &*seed,
        &*credentials(&user, "").replace(&seed, "hunter2"),
    ] {
        let sink = jetstream("nats://127.0.0.1:4222", None, Some(text.into()));
        let error = sink.check().unwrap_err().to_string();
        assert!(
            error.starts_with("STOCKADE_EVENTS_NATS_CREDENTIALS: expected"),
            "{error}"
        );
        assert!(
            !error.contains("hunter2") && !error.contains(&seed),
            "{error}"
        );
    }
    let wrong = TlsCertificates {
        client_tls: None,
        root_cert: Some(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".into()),
    };
    let sinks = [
        jetstream("tls://127.0.0.1:4222", Some(wrong), None),
        jetstream("nats://127.0.0.1:4222", None, Some("x".into())),
    ];
    for sink in sinks {
        assert!(sink.check().is_err());
    }
}

/// The messages of the queue `shop`, which a consumer takes without encryption.
async fn queued(server: &RabbitMq) -> Option<u64> {
    let (url, properties) = (server.url(), ConnectionProperties::default());
    let connection = Connection::connect(&url, properties).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let (name, none) = (|| "shop".into(), FieldTable::default);
    let durable = ExchangeDeclareOptions {
        durable: true,
        ..ExchangeDeclareOptions::default()
    };
    let declared = channel.exchange_declare(name(), ExchangeKind::Topic, durable, none());
    declared.await.unwrap();
    let queue = channel.queue_declare(name(), QueueDeclareOptions::durable(), none());
    let queue = queue.await.unwrap();
    let options = QueueBindOptions::default();
    let bound = channel.queue_bind(name(), name(), "#".into(), options, none());
    bound.await.unwrap();
    Some(u64::from(queue.message_count()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn amqp_is_reached_with_the_certificates_of_a_private_authority() {
    env::run(Backend::Sqlite, async |env: Arc<TestEnv>| {
        let files = Certificates::new();
        let port = free_port().await;
        let server = RabbitMq::builder()
            .config("listeners.ssl.local", &format!("127.0.0.1:{port}"))
            .config("ssl_options.cacertfile", &files.text("ca.pem"))
            .config("ssl_options.certfile", &files.text("server.pem"))
            .config("ssl_options.keyfile", &files.text("server.key"))
            .config("ssl_options.verify", "verify_peer")
            .config("ssl_options.fail_if_no_peer_cert", "true");
        let server = server.start().await.unwrap();
        queued(&server).await;
        let gate = Gate::to(port).await;
        let sinks = [
            None,
            Some(files.authority()),
            Some(files.authority_and_identity()),
        ];
        let sinks = sinks.map(|tls| SinkSettings::Amqp {
            url: format!("amqps://guest:guest@127.0.0.1:{}", gate.port),
            tls,
            exchange: "shop".into(),
        });
        let count = async || queued(&server).await;
        only_the_last_publishes(&env, &gate, sinks.to_vec(), count).await;
    })
    .await;
}

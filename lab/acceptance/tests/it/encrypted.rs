//! Encrypted connections: a Redis whose certificate a private authority signed, and which demands
//! one.

use std::{
    fs,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use reqwest::Client;
use serde_json::{Value, json};
use testbed::{Redis, free_port};
use testkit::eventually;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};

use crate::{
    identity::{AUDIENCE, Issuer},
    process::{Serving, order, run, settled_audit, stderr, stdout, stockade},
    test_env::TestEnv,
};

/// Writes `ca.pem`, and for each name a certificate `NAME.pem` with its key `NAME.key`.
fn write_certificates(dir: &Path, names: &[&str]) {
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Another name than that of the certificates: OpenSSL takes those for self-signed otherwise.
    params
        .distinguished_name
        .push(DnType::CommonName, "an authority");
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    fs::write(dir.join("ca.pem"), authority.pem()).unwrap();
    for name in names {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".into(), "localhost".into()]).unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        fs::write(dir.join(format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(dir.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

/// Has the server listen with its certificate. Returns the URL.
async fn encrypt(redis: &Redis, dir: &Path) -> String {
    let port = free_port().await;
    let file = |name: &str| dir.join(name).display().to_string();
    let mut connection = testbed::patient_connection(&redis.url()).await.unwrap();
    let () = redis::cmd("CONFIG")
        .arg("SET")
        .arg(&["tls-ca-cert-file", &file("ca.pem")])
        .arg(&["tls-cert-file", &file("server.pem")])
        .arg(&["tls-key-file", &file("server.key")])
        .arg(&["tls-auth-clients", "yes"])
        .arg(&["tls-port", &port.to_string()])
        .query_async(&mut connection)
        .await
        .unwrap();
    format!("rediss://127.0.0.1:{port}")
}

/// The program, with encrypted stock and lock, and these files of the folder.
fn with_files(dir: &Path, url: &str, files: &[(&str, &str)]) -> Command {
    let mut command = stockade(dir);
    command
        .env("REDIS_URL", url)
        .env("STOCKADE_LOCK", "redis")
        .env("LOCK_URLS", url);
    for (variable, file) in files {
        command.env(variable, dir.join(file));
    }
    command
}

const AUTHORITY: (&str, &str) = ("STOCKADE_TLS_CA", "ca.pem");
const IDENTITY: [(&str, &str); 2] = [
    ("STOCKADE_TLS_CERT", "client.pem"),
    ("STOCKADE_TLS_KEY", "client.key"),
];

#[tokio::test(flavor = "multi_thread")]
async fn stock_and_lock_are_reached_with_the_certificates_of_a_private_authority() {
    let env = TestEnv::new().await;
    write_certificates(env.dir(), &["server", "client"]);
    let url = encrypt(&env.redis, env.dir()).await;
    let all = [AUTHORITY, IDENTITY[0], IDENTITY[1]];
    let command = with_files(env.dir(), &url, &all);
    let service = Serving::serve_by(command, free_port().await, &[]).await;
    env.sells(&service.url, "vase", 2).await;
    let held = env.hold(&service.url, "vase", "k").await;
    env.becomes(&service.url, &held, "held").await;
    settled_audit(env.dir(), "vase").await;
    let audited = with_files(env.dir(), &url, &all)
        .args(["audit", "vase"])
        .output()
        .unwrap();
    assert!(audited.status.success(), "{audited:?}");
    let locked = with_files(env.dir(), &url, &all)
        .args(["lock", "run", "--backend", "redis", "till", "--", "true"])
        .output()
        .unwrap();
    assert!(locked.status.success(), "{locked:?}");
}

/// A server with the certificate `server`, which answers every request so. Returns its URL, and the
/// number of requests.
async fn encrypted_server(dir: &Path, answer: String) -> (String, Arc<AtomicUsize>) {
    let certificates = CertificateDer::pem_file_iter(dir.join("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(dir.join("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates.map(Result::unwrap).collect(), key)
        .unwrap();
    let (acceptor, received) = (TlsAcceptor::from(Arc::new(config)), Arc::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let answer: Arc<str> = answer.into();
    let counter: Arc<AtomicUsize> = Arc::clone(&received);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, counter) = (acceptor.clone(), Arc::clone(&counter));
            let answer = Arc::clone(&answer);
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                let mut bytes = [0; 16 * 1024];
                if stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {
                    counter.fetch_add(1, Ordering::Relaxed);
                    let _ = stream.write_all(answer.as_bytes()).await;
                    let _ = stream.shutdown().await;
                }
            });
        }
    });
    (url, received)
}

/// An answer with this JSON.
fn json_answer(body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_may_have_a_certificate_of_the_private_authority() {
    for is_known in [false, true] {
        let env = TestEnv::new().await;
        write_certificates(env.dir(), &["server"]);
        let answer = "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
        let (url, received) = encrypted_server(env.dir(), answer.into()).await;
        let hook = format!("{url}/hook");
        let mut command = stockade(env.dir());
        command.env("STOCKADE_WEBHOOKS_ALLOW_PRIVATE", "true");
        if is_known {
            command.env(AUTHORITY.0, env.dir().join(AUTHORITY.1));
        }
        let service = Serving::serve_by(command, free_port().await, &[]).await;
        let webhooks = format!("{}/v1/webhooks", service.url);
        let post = |url: &str| Client::new().post(url).bearer_auth(&env.admin);
        let created = post(&webhooks).json(&json!({ "url": hook, "kinds": ["item.created"] }));
        let created: Value = created.send().await.unwrap().json().await.unwrap();
        let id = created["id"].as_str().unwrap();
        let tested = post(&format!("{webhooks}/{id}/test")).send().await.unwrap();
        let tested: Value = tested.json().await.unwrap();
        assert_eq!(tested["delivered"], is_known, "{tested}");
        env.sells(&service.url, "vase", 2).await;
        eventually("a delivery, or an error", async || {
            let all = env.gets(&webhooks).await;
            let has_failed = all["data"][0]["last_error"].is_string();
            has_failed || received.load(Ordering::Relaxed) == 2
        })
        .await;
        // The test, and the event that the publisher sends.
        let expected = if is_known { 2 } else { 0 };
        assert_eq!(received.load(Ordering::Relaxed), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_set_may_have_a_certificate_of_the_private_authority() {
    let env = TestEnv::new().await;
    write_certificates(env.dir(), &["server"]);
    let issuer = Issuer::new("key");
    let (url, received) = encrypted_server(env.dir(), json_answer(&issuer.key_set())).await;
    let with_key_set = || {
        let mut command = stockade(env.dir());
        command
            .env("STOCKADE_JWKS", format!("{url}/keys"))
            .env("STOCKADE_JWT_AUDIENCE", AUDIENCE);
        command
    };
    let refused = run(with_key_set().args(["serve", "--listen", "127.0.0.1:0"]));
    let error = stderr(&refused);
    assert_eq!(refused.status.code(), Some(2), "{error}");
    assert!(error.contains("STOCKADE_JWKS"), "{error}");
    assert_eq!(received.load(Ordering::Relaxed), 0);

    let mut command = with_key_set();
    command.env(AUTHORITY.0, env.dir().join(AUTHORITY.1));
    let service = Serving::serve_by(command, free_port().await, &[]).await;
    let item = json!({ "id": "vase", "stock": 2 });
    env.create(&service.url, &item).await;
    let token = issuer.token("ann");
    let placed = order(&Client::new(), &service.url, "vase", &token, "k");
    assert_eq!(placed.send().await.unwrap().status(), 201);
    assert!(received.load(Ordering::Relaxed) >= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_reaches_a_service_with_a_certificate_of_the_private_authority() {
    let folder = tempfile::tempdir().unwrap();
    write_certificates(folder.path(), &["server"]);
    let answer = json_answer("{\"data\":[{\"id\":\"vase\"}],\"next\":null}");
    let (url, received) = encrypted_server(folder.path(), answer).await;
    let list = || {
        let mut command = stockade(folder.path());
        command
            .env("STOCKADE_TOKEN", "a token of the admins")
            .args(["items", "list", "--json", "--url", &url]);
        command
    };
    let refused = run(&mut list());
    assert!(!refused.status.success(), "{}", stdout(&refused));
    assert_eq!(received.load(Ordering::Relaxed), 0);
    let listed = run(list().env(AUTHORITY.0, folder.path().join(AUTHORITY.1)));
    assert!(listed.status.success(), "{}", stderr(&listed));
    assert!(stdout(&listed).contains("vase"), "{}", stdout(&listed));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_certificates_nothing_starts() {
    let env = TestEnv::new().await;
    write_certificates(env.dir(), &["server", "client"]);
    let url = encrypt(&env.redis, env.dir()).await;
    fs::write(env.dir().join("empty.pem"), "").unwrap();
    for (files, expected) in [
        (&[][..], "REDIS_URL"),
        (&[AUTHORITY], "REDIS_URL"),
        (&[AUTHORITY, IDENTITY[0]], "expected both or none"),
        (&[("STOCKADE_TLS_CA", "missing.pem")], "STOCKADE_TLS_CA"),
        (&[("STOCKADE_TLS_CA", "empty.pem")], "expected a PEM file"),
    ] {
        let mut command = with_files(env.dir(), &url, files);
        let output = command
            .args(["serve", "--listen", "127.0.0.1:0"])
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{files:?}: {error}");
        assert!(error.contains(expected), "{files:?}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_on_another_machine_needs_a_word_about_encryption() {
    let env = TestEnv::new().await;
    let output = stockade(env.dir())
        .env(
            "DATABASE_URL",
            "postgres://stockade:secret@ledger.example/shop",
        )
        .args(["serve", "--listen", "127.0.0.1:0"])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.contains("sslmode=verify-full") && !error.contains("secret"),
        "{error}"
    );
}

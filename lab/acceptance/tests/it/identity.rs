//! Who buyers and admins are: an issuer whose keys change, and a file with named admins.

use std::sync::{Arc, Mutex};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use reqwest::Client;
use ring::{
    digest::{SHA256, digest},
    rand::SystemRandom,
    signature::{Ed25519KeyPair, KeyPair},
};
use serde_json::{Value, json};
use testbed::free_port;
use testkit::eventually;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::{
    process::{Serving, order, stockade},
    test_env::TestEnv,
};

/// The audience of the shop's tokens.
pub const AUDIENCE: &str = "shop";

/// The login of a shop: it signs tokens, and publishes its key.
pub struct Issuer {
    id: &'static str,
    key: Ed25519KeyPair,
}

impl Issuer {
    pub fn new(id: &'static str) -> Self {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let key = Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap();
        Self { id, key }
    }

    pub fn key_set(&self) -> String {
        let x = URL_SAFE_NO_PAD.encode(self.key.public_key());
        json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": self.id, "x": x }] }).to_string()
    }

    pub fn token(&self, buyer: &str) -> String {
        self.sign(json!({ "sub": buyer, "exp": 4_102_444_800_u64, "aud": AUDIENCE }))
    }

    /// A token with these claims.
    fn sign(&self, claims: Value) -> String {
        let header = json!({ "alg": "EdDSA", "kid": self.id });
        let part = |part: Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let text = format!("{}.{}", part(header), part(claims));
        let signature = URL_SAFE_NO_PAD.encode(self.key.sign(text.as_bytes()));
        format!("{text}.{signature}")
    }
}

/// Answers every request with the text as it is then. Returns the address.
async fn publish(text: Arc<Mutex<String>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let body = text.lock().unwrap().clone();
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
        }
    });
    format!("http://{address}/jwks")
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_a_new_key_are_accepted_while_the_service_runs() {
    let env = TestEnv::new().await;
    let (old, new) = (Issuer::new("old"), Issuer::new("new"));
    let published = Arc::new(Mutex::new(old.key_set()));
    let url = publish(Arc::clone(&published)).await;
    let mut command = stockade(env.dir());
    command
        .env("STOCKADE_JWKS", &url)
        .env("STOCKADE_JWT_AUDIENCE", AUDIENCE);
    let service = Serving::serve_by(command, free_port().await, &[]).await;
    env.sells(&service.url, "vase", 10).await;
    let status = async |token: String, key: &str| {
        let request = order(&Client::new(), &service.url, "vase", &token, key);
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(status(old.token("ann"), "a").await, 201);
    assert_eq!(status(new.token("bob"), "b").await, 401);
    assert_eq!(
        status(env.ann.clone(), "c").await,
        401,
        "the secret is not used"
    );
    *published.lock().unwrap() = new.key_set();
    eventually("the new key", async || {
        status(new.token("bob"), "b").await == 201
    })
    .await;
    assert_eq!(
        status(old.token("ann"), "a").await,
        401,
        "its key is withdrawn"
    );
    *published.lock().unwrap() = "no key set".into();
    assert_eq!(status(Issuer::new("other").token("eve"), "e").await, 401);
    assert_eq!(
        status(new.token("bob"), "b").await,
        201,
        "the keys stay as they were"
    );
}

/// The keys of an identity provider sign tokens for many applications.
#[tokio::test(flavor = "multi_thread")]
async fn with_a_key_set_a_token_must_be_for_this_shop() {
    let env = TestEnv::new().await;
    let issuer = Issuer::new("key");
    let file = env.dir().join("keys.json");
    std::fs::write(&file, issuer.key_set()).unwrap();
    let mut command = stockade(env.dir());
    command
        .env("STOCKADE_JWKS", &file)
        .env("STOCKADE_JWT_AUDIENCE", AUDIENCE);
    let service = Serving::serve_by(command, free_port().await, &[]).await;
    let item = json!({ "id": "vase", "stock": 10 });
    env.create(&service.url, &item).await;
    let exp = 4_102_444_800_u64;
    for (key, claims, accepted) in [
        (
            "a",
            json!({ "sub": "ann", "exp": exp, "aud": AUDIENCE }),
            true,
        ),
        (
            "b",
            json!({ "sub": "ann", "exp": exp, "aud": ["news", AUDIENCE] }),
            true,
        ),
        (
            "c",
            json!({ "sub": "ann", "exp": exp, "aud": "news" }),
            false,
        ),
        ("d", json!({ "sub": "ann", "exp": exp, "aud": [] }), false),
        ("e", json!({ "sub": "ann", "exp": exp }), false),
    ] {
        let token = issuer.sign(claims.clone());
        let request = order(&Client::new(), &service.url, "vase", &token, key);
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        assert_eq!(status, if accepted { 201 } else { 401 }, "{claims}");
        if !accepted {
            let problem: Value = answer.json().await.unwrap();
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.contains("aud"), "{claims}: {detail}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_admin_does_what_the_file_allows() {
    let env = TestEnv::new().await;
    let hash: String = digest(&SHA256, b"token of the warehouse")
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let file = env.dir().join("admins.toml");
    let admins = format!(
        "[[admins]]\nname = \"warehouse\"\ntoken_sha256 = \"{hash}\"\nscopes = [\"read\", \"stock:write\"]\n"
    );
    std::fs::write(&file, &admins).unwrap();
    let mut command = stockade(env.dir());
    command.env("STOCKADE_ADMINS_FILE", &file);
    let service = Serving::serve_by(command, free_port().await, &[]).await;
    env.sells(&service.url, "vase", 10).await;
    let call = async |path: &str, body: Value| {
        let request = Client::new()
            .post(format!("{}{path}", service.url))
            .header("Idempotency-Key", "k")
            .bearer_auth("token of the warehouse")
            .json(&body);
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(
        call("/v1/items", json!({ "id": "jug", "stock": 1 })).await,
        403
    );
    let added = call("/v1/items/vase/stock", json!({ "add": 5 })).await;
    assert!(added == 200 || added == 202, "{added}");
    let journal = Client::new()
        .get(format!("{}/v1/items/vase/journal", service.url))
        .bearer_auth("token of the warehouse");
    let journal: Value = journal.send().await.unwrap().json().await.unwrap();
    assert_eq!(journal["data"][0]["actor"], "warehouse", "{journal}");

    std::fs::write(&file, admins.replace("stock:write", "everything")).unwrap();
    let refused = stockade(env.dir())
        .env("STOCKADE_ADMINS_FILE", &file)
        .args(["serve", "--listen", "127.0.0.1:0"])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{error}");
    assert!(
        error.contains("warehouse") && error.contains("items:write"),
        "{error}"
    );
}

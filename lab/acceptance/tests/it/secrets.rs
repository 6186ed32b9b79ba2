//! Secrets are replaced as `docs/operations.md` says: two order services are restarted one after
//! the other, callers of both secrets are served meanwhile, and the old secrets are refused in the
//! end.

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Bytes, extract::State, http::HeaderMap, routing::post};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use order::PaymentKey;
use reqwest::{Client, RequestBuilder};
use ring::{digest, hmac};
use serde_json::{Value, json};
use testbed::free_port;
use testkit::eventually;
use tokio::net::TcpListener;

use crate::{
    process::{Serving, create, order, stockade, token},
    test_env::TestEnv,
};

const OLD: Secrets = Secrets {
    jwt: "the old secret of the login",
    admin: "the old token of the admins",
    payment: "the old secret of payments",
    stripe: "the old secret of stripe",
};
const NEW: Secrets = Secrets {
    jwt: "the new secret of the login",
    admin: "the new token of the admins",
    payment: "the new secret of payments",
    stripe: "the new secret of stripe",
};
const SCOPES: &str = "\"read\", \"items:write\"";

struct Secrets {
    jwt: &'static str,
    admin: &'static str,
    payment: &'static str,
    stripe: &'static str,
}

impl Secrets {
    fn settings(&self) -> String {
        let Self {
            jwt,
            admin,
            payment,
            stripe,
        } = self;
        format!(
            "jwt_secret = \"{jwt}\"\nadmin_token = \"{admin}\"\npayment_secret = \"{payment}\"\nstripe_secret = \"{stripe}\"\n"
        )
    }
}

/// Both secrets are accepted, of payments the new one: the provider signs with both.
fn both(admins: &str) -> String {
    let of_both = Secrets {
        admin: OLD.admin,
        ..NEW
    };
    format!(
        "{}jwt_secret_previous = \"{}\"\nstripe_secret_previous = \"{}\"\nadmins_file = \"{admins}\"\n",
        of_both.settings(),
        OLD.jwt,
        OLD.stripe
    )
}

fn admins() -> String {
    let hash = digest::digest(&digest::SHA256, NEW.admin.as_bytes());
    let hash: String = hash
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("[[admins]]\nname = \"next\"\ntoken_sha256 = \"{hash}\"\nscopes = [{SCOPES}]\n")
}

/// A caller of each kind, with these secrets.
struct Callers {
    buyer: String,
    admin: &'static str,
    payments: Vec<PaymentKey>,
    stripe: PaymentKey,
}

fn key(secret: &str) -> PaymentKey {
    PaymentKey::new(secret.as_bytes(), Duration::from_secs(300))
}

impl Callers {
    async fn status(request: RequestBuilder) -> u16 {
        request.send().await.unwrap().status().as_u16()
    }

    /// What the buyer, the admin, the payment provider and Stripe are answered.
    async fn call(&self, url: &str, number: usize) -> [u16; 4] {
        let client = Client::new();
        let ordered = order(&client, url, "vase", &self.buyer, &format!("key-{number}"));
        let shown = client
            .get(format!("{url}/v1/items"))
            .bearer_auth(self.admin);
        // An order that is not there gets 404, once the signature is right.
        let unknown = "00000000-0000-8000-8000-000000000000";
        let body = json!({ "payment": "pay", "order": unknown, "amount": 1 }).to_string();
        let signatures: Vec<_> = self
            .payments
            .iter()
            .map(|key| key.sign(body.as_bytes()))
            .collect();
        let paid = client
            .post(format!("{url}/v1/orders/{unknown}/payment"))
            .header("Stockade-Signature", signatures.join(","))
            .body(body);
        let event = json!({ "id": "evt_1", "type": "invoice.paid", "data": { "object": {} } });
        let event = event.to_string();
        let striped = client
            .post(format!("{url}/v1/webhooks/stripe"))
            .header("Stripe-Signature", self.stripe.sign(event.as_bytes()))
            .body(event);
        [
            Self::status(ordered).await,
            Self::status(shown).await,
            Self::status(paid).await,
            Self::status(striped).await,
        ]
    }
}

const SERVED: [u16; 4] = [201, 200, 404, 200];
const REFUSED: [u16; 4] = [401, 401, 400, 400];

struct Fleet {
    env: TestEnv,
    services: Vec<Serving>,
}

impl Fleet {
    fn folder(&self, name: &str, secrets: &str) -> PathBuf {
        let (folder, ledger) = (self.env.dir().join(name), self.env.dir().join("ledger.db"));
        fs::create_dir_all(&folder).unwrap();
        let stores = format!(
            "redis_url = \"{}\"\ndatabase_url = \"sqlite://{}\"\n",
            self.env.redis.url(),
            ledger.display()
        );
        fs::write(folder.join("stockade.toml"), stores + secrets).unwrap();
        folder
    }

    async fn restart(&mut self, service: usize, secrets: &str) {
        assert_eq!(self.services[service].interrupt(), Some(0));
        self.services[service] = self.start(service, secrets).await;
    }

    async fn start(&self, service: usize, secrets: &str) -> Serving {
        let folder = self.folder(&format!("service-{service}"), secrets);
        let roles = ["--roles", "order,recorder"];
        Serving::serve_by(stockade(&folder), free_port().await, &roles).await
    }

    async fn answers(&self, callers: &Callers, numbers: [usize; 2]) -> [[u16; 4]; 2] {
        [
            callers.call(&self.services[0].url, numbers[0]).await,
            callers.call(&self.services[1].url, numbers[1]).await,
        ]
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_replaced_without_a_refused_caller_and_the_old_ones_end() {
    let mut fleet = Fleet {
        env: TestEnv::new().await,
        services: Vec::new(),
    };
    for service in 0..2 {
        let started = fleet.start(service, &OLD.settings()).await;
        fleet.services.push(started);
    }
    let item = json!({ "id": "vase", "stock": 100 });
    create(&fleet.services[0].url, OLD.admin, &item).await;
    let buyer = |secrets: &Secrets| {
        let folder = fleet.folder("login", &secrets.settings());
        token(&folder, &["buyer", "ann"])
    };
    let mut old = Callers {
        buyer: buyer(&OLD),
        admin: OLD.admin,
        payments: vec![key(OLD.payment)],
        stripe: key(OLD.stripe),
    };
    let new = Callers {
        buyer: buyer(&NEW),
        admin: NEW.admin,
        payments: vec![key(NEW.payment)],
        stripe: key(NEW.stripe),
    };
    assert_eq!(fleet.answers(&old, [0, 1]).await, [SERVED; 2]);
    assert_eq!(fleet.answers(&new, [2, 3]).await, [REFUSED; 2]);

    // The provider signs with both from now on. The services are restarted one after the other.
    old.payments = vec![key(OLD.payment), key(NEW.payment)];
    let admins_file = fleet.env.dir().join("admins.toml");
    fs::write(&admins_file, admins()).unwrap();
    let both = both(&admins_file.display().to_string());
    fleet.restart(0, &both).await;
    assert_eq!(fleet.answers(&old, [4, 5]).await, [SERVED; 2]);
    fleet.restart(1, &both).await;
    assert_eq!(fleet.answers(&old, [6, 7]).await, [SERVED; 2]);
    // Now the callers change.
    assert_eq!(fleet.answers(&new, [8, 9]).await, [SERVED; 2]);
    fleet.restart(0, &NEW.settings()).await;
    assert_eq!(fleet.answers(&new, [10, 11]).await, [SERVED; 2]);
    fleet.restart(1, &NEW.settings()).await;
    assert_eq!(fleet.answers(&new, [12, 13]).await, [SERVED; 2]);
    old.payments = vec![key(OLD.payment)];
    assert_eq!(fleet.answers(&old, [14, 15]).await, [REFUSED; 2]);
}

/// What arrived: the id, and the header and the text that it signs.
type Arrived = Arc<Mutex<Vec<(String, String, Vec<u8>)>>>;

async fn receive(State(arrived): State<Arrived>, headers: HeaderMap, body: Bytes) {
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    let id = header("webhook-id");
    let signed = format!("{id}.{}.", header("webhook-timestamp"));
    let signed = [signed.as_bytes(), &body].concat();
    let signature = header("webhook-signature");
    arrived.lock().unwrap().push((id, signature, signed));
}

fn is_signed_by(secret: &str, signature: &str, signed: &[u8]) -> bool {
    let secret = secret.strip_prefix("whsec_").unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &STANDARD.decode(secret).unwrap());
    let wanted = format!("v1,{}", STANDARD.encode(hmac::sign(&key, signed)));
    signature.split(' ').any(|one| one == wanted)
}

/// The ids of what arrived with a signature of this secret.
fn ids(arrived: &Arrived, secret: &str) -> Vec<String> {
    let arrived = arrived.lock().unwrap();
    let mine = arrived
        .iter()
        .filter(|(_, signature, signed)| is_signed_by(secret, signature, signed));
    mine.map(|(id, ..)| id.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_secret_is_replaced_by_a_second_webhook() {
    let env = TestEnv::new().await;
    env.set("webhooks_allow_private = \"true\"");
    let roles = ["--roles", "order,recorder,publisher"];
    let service = env.serve(&roles).await;
    let url = &service.url;
    env.sells(url, "vase", 100).await;

    let arrived = Arrived::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hook = format!("http://{}/hook", listener.local_addr().unwrap());
    let router = Router::new()
        .route("/hook", post(receive))
        .with_state(Arc::clone(&arrived));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let add = async || {
        let request = Client::new()
            .post(format!("{url}/v1/webhooks"))
            .bearer_auth(&env.admin)
            .json(&json!({ "url": hook, "kinds": ["order.held"] }));
        let added: Value = request.send().await.unwrap().json().await.unwrap();
        let text = |field: &str| added[field].as_str().unwrap().to_owned();
        (text("id"), text("secret"))
    };

    let (old, old_secret) = add().await;
    env.hold(url, "vase", "first").await;
    eventually("the first event", async || {
        ids(&arrived, &old_secret).len() == 1
    })
    .await;
    let (_, new_secret) = add().await;
    env.hold(url, "vase", "second").await;
    eventually("the second event twice", async || {
        ids(&arrived, &old_secret).len() == 2 && ids(&arrived, &new_secret).len() == 1
    })
    .await;
    assert_eq!(
        ids(&arrived, &old_secret)[1],
        ids(&arrived, &new_secret)[0],
        "both have the same id"
    );
    let removed = Client::new()
        .delete(format!("{url}/v1/webhooks/{old}"))
        .bearer_auth(&env.admin);
    assert_eq!(removed.send().await.unwrap().status(), 204);
    // A delivery that had begun when the webhook was removed may still come, and only then.
    for number in 3.. {
        env.hold(url, "vase", &format!("order-{number}")).await;
        eventually("the event by the new secret", async || {
            ids(&arrived, &new_secret).len() == number - 1
        })
        .await;
        let by_the_old = ids(&arrived, &old_secret);
        if !by_the_old.contains(&ids(&arrived, &new_secret)[number - 2]) {
            break;
        }
        assert!(number < 5, "by the old secret: {by_the_old:?}");
    }
}

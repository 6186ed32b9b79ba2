//! The payment secret.

use std::time::Duration;

use order::PaymentKey;
use reqwest::Response;
use serde_json::{Value, json};

use crate::process::{Serving, order, polling_client, run, settled_audit, stdout, stockade, token};

/// Price of the demo item's unit.
const PRICE_CENTS: u64 = 149_900;

pub async fn pay(url: &str, order: &str, secret: &str, payment: &str, cents: u64) -> Response {
    let body = json!({ "payment": payment, "order": order, "amount": cents }).to_string();
    let signature =
        PaymentKey::new(secret.as_bytes(), Duration::from_secs(300)).sign(body.as_bytes());
    let request = polling_client()
        .post(format!("{url}/v1/orders/{order}/payment"))
        .header("Stockade-Signature", signature);
    request.body(body).send().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn up_writes_the_payment_secret_to_the_run_file() {
    let folder = tempfile::tempdir().unwrap();
    let (mut secrets, mut orders) = (Vec::new(), Vec::new());
    for start in 0..2 {
        let mut up = Serving::up(folder.path());
        let run_file: toml::Table = std::fs::read_to_string(folder.path().join("run.toml"))
            .unwrap()
            .parse()
            .unwrap();
        let secret = run_file["payment_secret"].as_str().unwrap().to_owned();
        let config = stdout(&run(stockade(folder.path()).arg("config")));
        assert!(
            config.contains("payment_secret = \"***\"") && !config.contains(&secret),
            "{config}"
        );
        let ann = token(folder.path(), &["buyer", "ann"]);
        let held: Value = order(
            &polling_client(),
            &up.url,
            "demo",
            &ann,
            &format!("k-{start}"),
        )
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
        let id = held["id"].as_str().unwrap().to_owned();
        let forged = pay(&up.url, &id, "another secret", "pay", PRICE_CENTS).await;
        assert_eq!(forged.status().as_u16(), 400);
        assert_eq!(
            forged.json::<Value>().await.unwrap()["code"],
            "invalid_signature"
        );
        let paid = pay(&up.url, &id, &secret, &format!("pay-{start}"), PRICE_CENTS).await;
        assert_eq!(paid.status().as_u16(), 200);
        assert_eq!(paid.json::<Value>().await.unwrap()["state"], "confirmed");
        secrets.push(secret);
        orders.push(id);
        for (payment, order) in orders.iter().enumerate() {
            let again = pay(
                &up.url,
                order,
                &secrets[0],
                &format!("pay-{payment}"),
                PRICE_CENTS,
            )
            .await;
            assert_eq!(again.json::<Value>().await.unwrap()["state"], "confirmed");
        }
        let report = settled_audit(folder.path(), "demo").await;
        assert_eq!(report["confirmed"], start + 1, "{report:#}");
        assert_eq!(up.interrupt(), Some(0));
    }
    assert_eq!(secrets[0], secrets[1], "it is the same next time");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_secret_no_payment_is_taken() {
    let env = crate::test_env::TestEnv::new().await;
    let service = Serving::serve(env.dir(), testbed::free_port().await, &[]).await;
    env.sells(&service.url, "vase", 1).await;
    let id = env.hold(&service.url, "vase", "k").await;
    let refused = pay(&service.url, &id, "", "pay", 0).await;
    assert_eq!(refused.status().as_u16(), 503);
    assert!(
        refused.json::<Value>().await.unwrap()["detail"]
            .as_str()
            .unwrap()
            .contains("STOCKADE_PAYMENT_SECRET")
    );
    drop(service);

    // In a file, as orchestrators hand out secrets. There is no flag, which `ps` would show to all.
    let secret = env.dir().join("payment.secret");
    std::fs::write(&secret, "a secret of the provider\n").unwrap();
    let mut command = stockade(env.dir());
    command.env("STOCKADE_PAYMENT_SECRET_FILE", &secret);
    let (port, window) = (
        testbed::free_port().await,
        ["--payment-window-seconds", "5"],
    );
    let service = Serving::serve_by(command, port, &window).await;
    assert_eq!(
        pay(&service.url, &id, "a secret of the provider", "pay", 0)
            .await
            .status()
            .as_u16(),
        200
    );
}

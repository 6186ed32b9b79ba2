//! A ledger that is a file: it is restored to a copy, by the commands of `docs/operations.md`.

use std::{collections::BTreeSet, path::Path, process::Command};

use reqwest::StatusCode;
use serde_json::json;
use sqlx::{Connection, SqliteConnection};

use super::drill::{documented, outboxes_are_trimmed, path};
use crate::{
    process::{Serving, order, run, settled_audit, stderr, stdout, token},
    test_env::TestEnv,
};

const STOCK: usize = 30;

fn ledger_file(env: &TestEnv) -> String {
    env.dir().join("ledger.db").display().to_string()
}

/// Runs a block of the page.
fn shell(env: &TestEnv, first_line: &str) -> String {
    let mut command = Command::new("bash");
    command
        .args(["-euo", "pipefail", "-c", documented(first_line)])
        .current_dir(env.dir())
        .env("PATH", path())
        .env("LEDGER_FILE", ledger_file(env))
        .env("DATABASE_URL", format!("sqlite://{}", ledger_file(env)))
        .env("REDIS_URL", env.redis.url())
        .env("BACKUP", env.dir().join("backup"));
    let output = run(&mut command);
    assert!(output.status.success(), "{first_line}: {}", stderr(&output));
    stdout(&output)
}

async fn place(env: &TestEnv, url: &str, buyer: usize) -> (StatusCode, String) {
    let token = token(env.dir(), &["buyer", &format!("buyer-{buyer}")]);
    let request = order(&reqwest::Client::new(), url, "vase", &token, "key");
    let response = request.send().await.unwrap();
    let status = response.status();
    let body: serde_json::Value = response.json().await.unwrap();
    (status, body["id"].as_str().unwrap_or_default().to_owned())
}

async fn hold_all(env: &TestEnv, url: &str, buyers: std::ops::Range<usize>) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for buyer in buyers {
        let (status, id) = place(env, url, buyer).await;
        assert_eq!(status, StatusCode::CREATED);
        ids.insert(id);
    }
    ids
}

async fn recorded(file: &Path) -> BTreeSet<String> {
    let url = format!("sqlite://{}", file.display());
    let mut ledger = SqliteConnection::connect(&url).await.unwrap();
    let ids: Vec<String> =
        sqlx::query_scalar("SELECT lower(hex(id)) FROM orders WHERE state = 'held'")
            .fetch_all(&mut ledger)
            .await
            .unwrap();
    ids.into_iter().collect()
}

fn without_dashes(ids: &BTreeSet<String>) -> BTreeSet<String> {
    ids.iter().map(|id| id.replace('-', "")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_file_that_is_restored_loses_what_came_after_the_copy() {
    let env = TestEnv::new().await;
    let serve = async |roles: &str| {
        let port = testbed::free_port().await;
        Serving::serve(env.dir(), port, &["--roles", roles]).await
    };
    let service = serve("order,recorder").await;
    let item = json!({ "id": "vase", "stock": STOCK, "segments": 2, "limit_per_buyer": 1, "hold_seconds": 600 });
    env.create(&service.url, &item).await;
    let earlier = hold_all(&env, &service.url, 0..8).await;
    // The service goes on meanwhile.
    shell(&env, "# Back up a ledger that is a file.");
    let later = hold_all(&env, &service.url, 8..20).await;
    outboxes_are_trimmed(&[env.redis.url()]).await;
    drop(service);

    shell(&env, "# Restore a ledger that is a file.");
    let printed = shell(&env, "# Rebuild Redis from a ledger that is a file.");
    assert!(
        printed.contains("vase: rebuilt from the ledger"),
        "{printed}"
    );
    let service = serve("order,recorder,reconciler").await;
    let now = recorded(Path::new(&ledger_file(&env))).await;
    let (earlier, later) = (without_dashes(&earlier), without_dashes(&later));
    assert!(now.is_superset(&earlier), "nothing before the copy is lost");
    assert!(now.is_subset(&(&earlier | &later)));
    assert!(now.len() <= earlier.len() + 2, "{} are kept", now.len());

    // A repeat is the same order, and the rest is sold, each unit once.
    for buyer in 8..20 {
        let (status, id) = place(&env, &service.url, buyer).await;
        assert_eq!(status, StatusCode::CREATED);
        assert!(later.contains(&id.replace('-', "")));
    }
    hold_all(&env, &service.url, 20..STOCK).await;
    assert_eq!(
        place(&env, &service.url, STOCK).await.0,
        StatusCode::CONFLICT
    );
    let report = settled_audit(env.dir(), "vase").await;
    assert_eq!(report["held"], STOCK, "{report:#}");
}

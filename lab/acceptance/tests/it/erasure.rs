//! Erasing a buyer, by the commands of `docs/operations.md`.

use std::process::Command;

use reqwest::{Client, Method};
use serde_json::{Value, json};
use sqlx::{Connection, SqliteConnection};

use crate::{
    process::{run, settled_audit, stderr},
    restore::{documented, path},
    test_env::TestEnv,
};

/// Runs the commands of the page for ann and the item.
fn erase(env: &TestEnv, item: &str) {
    let script = documented("stockade items archive \"$ITEM\"   # the name is needed until then");
    // The commands find the settings in the default folder.
    std::os::unix::fs::symlink(env.dir(), env.dir().join(".stockade")).unwrap();
    let mut command = Command::new("bash");
    command
        .args(["-euo", "pipefail", "-c", script])
        .current_dir(env.dir())
        .env("PATH", path())
        .env("BUYER", "ann")
        .env("ITEM", item);
    let output = run(&mut command);
    assert!(output.status.success(), "{}", stderr(&output));
}

/// Every value of every table but the ids and what is no text.
async fn texts(env: &TestEnv) -> Vec<String> {
    let url = format!("sqlite://{}/ledger.db", env.dir().display());
    let mut ledger = SqliteConnection::connect(&url).await.unwrap();
    let columns: Vec<(String, String)> = sqlx::query_as(
        "SELECT tables.name, columns.name FROM sqlite_schema AS tables JOIN pragma_table_info(tables.name) AS columns \
         WHERE tables.type = 'table' AND columns.type = 'TEXT'",
    )
    .fetch_all(&mut ledger)
    .await
    .unwrap();
    let mut texts = Vec::new();
    for (table, column) in columns {
        let values = format!(
            "SELECT CAST(\"{column}\" AS TEXT) FROM \"{table}\" WHERE \"{column}\" IS NOT NULL"
        );
        let values: Vec<String> = sqlx::query_scalar(sqlx::AssertSqlSafe(values))
            .fetch_all(&mut ledger)
            .await
            .unwrap();
        texts.extend(
            values
                .iter()
                .map(|value| format!("{table}.{column}: {value}")),
        );
    }
    texts
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_commands_of_the_page_the_ledger_has_neither_name_nor_orders_of_the_buyer() {
    let env = TestEnv::new().await;
    let service = env.serve(&[]).await;
    env.sells(&service.url, "vase", 10).await;
    let admin_gets = async |path: &str| env.gets(&format!("{}{path}", service.url)).await;
    let held = env.hold(&service.url, "vase", "k").await;
    let admin = Client::new();
    let cancel = admin.request(Method::DELETE, format!("{}/v1/orders/{held}", service.url));
    let cancelled = cancel.bearer_auth(&env.admin).send().await.unwrap();
    assert_eq!(cancelled.status(), 200);
    let close = admin.request(Method::PUT, format!("{}/v1/items/vase/state", service.url));
    let closed = close
        .bearer_auth(&env.admin)
        .json(&json!({ "state": "closed" }));
    assert_eq!(closed.send().await.unwrap().status(), 200);
    settled_audit(env.dir(), "vase").await;
    let has_name = |texts: &[String]| texts.iter().any(|text| text.ends_with(": ann"));
    assert!(has_name(&texts(&env).await), "the orders name her before");

    let of_item = async || {
        let of_item = admin_gets("/v1/items/vase/journal").await;
        of_item["data"].as_array().unwrap().clone()
    };
    let before = of_item().await;
    for action in ["create", "cancel", "state"] {
        assert_eq!(actor_of(&before, action), "admin", "{action}");
    }

    erase(&env, "vase");

    let texts = texts(&env).await;
    assert!(!has_name(&texts), "{texts:#?}");
    let orders = admin_gets("/v1/items/vase/orders").await;
    assert_eq!(orders["data"], json!([]), "their ids are gone, too");
    let journal = admin_gets("/v1/journal").await;
    let erased = &journal["data"][0];
    assert_eq!(erased["action"], "erase_buyer", "{journal}");
    assert_eq!(erased["after"], json!({ "orders": 1, "kept": 0 }));
    let account = erased["actor"].as_str().unwrap();
    assert!(account.starts_with("cli:"), "{erased}");
    let after = of_item().await;
    for action in ["create", "state"] {
        assert_eq!(actor_of(&after, action), "admin", "{action} stays");
    }
    assert!(after.iter().all(|entry| entry["action"] != "cancel"));
    for action in ["archive", "drop_request", "drop_export", "drop"] {
        assert_eq!(actor_of(&after, action), account, "{action}");
    }
}

/// The actor of the newest entry with this action.
fn actor_of<'e>(entries: &'e [Value], action: &str) -> &'e str {
    let entry = entries.iter().find(|entry| entry["action"] == action);
    let entry = entry.unwrap_or_else(|| panic!("no {action} in {entries:?}"));
    entry["actor"].as_str().unwrap()
}

//! The status of a lock on its nodes.

use serde_json::{Value, json};
use testkit::{eventually, in_time};
use tokio::process::Command;

use super::test_env::{
    Holding, code, exit_code, five, holding, lock_status, name, redis as command, start,
    status_command,
};
use crate::process::{stderr, stdout};

#[tokio::test]
async fn the_table_shows_every_node_and_the_holder() {
    let (mut servers, name) = (start(5).await, name("status"));
    let output = lock_status(&servers, &name, &[]);
    assert_eq!(
        (code(&output), stdout(&output).lines().last()),
        (0, Some("free")),
        "{}",
        stderr(&output)
    );

    let _holder = Holding::of(&servers, &name, &["--lease", "60"], &["sleep", "60"]);
    eventually("it is held", async || holding(&servers, &name).await == 5).await;
    command::<()>(
        &servers[1],
        &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"],
    )
    .await;
    servers[0].kill().await.unwrap();
    let (owner, token): (String, String) = (
        command(&servers[2], &["GET", &name]).await,
        command(&servers[2], &["GET", &format!("{name}:fence")]).await,
    );
    let output = lock_status(&servers, &name, &[]);
    let text = stdout(&output);
    assert_eq!(code(&output), 0, "{text}");
    for (server, expected) in servers.iter().zip([
        &["does not answer"][..],
        &["does not vote", "allkeys-lru", &owner],
        &["votes", &owner, &token],
        &["votes", &owner],
        &["votes", &owner],
    ]) {
        let row = text
            .lines()
            .find(|line| line.contains(&format!(":{} ", server.port())))
            .unwrap_or_else(|| panic!("{text}"));
        assert!(
            expected.iter().all(|expected| row.contains(expected)),
            "{expected:?}: {text}"
        );
    }
    assert!(
        ["node", "holder", "token", "remaining", "guards"]
            .iter()
            .all(|column| text.contains(column)),
        "{text}"
    );
    let last = text.lines().last().unwrap();
    assert!(
        last.starts_with(&format!("held by a quorum: token {token}, "))
            && last.ends_with(" s left"),
        "{last}"
    );

    servers[3].kill().await.unwrap();
    let output = lock_status(&servers, &name, &[]);
    assert_eq!(code(&output), 69);
    assert!(
        stdout(&output).ends_with("no quorum: 2 of 5 nodes vote, 3 are needed\n"),
        "{}",
        stdout(&output)
    );
}

#[tokio::test]
async fn it_is_also_there_as_json() {
    let (servers, name) = (five().await, name("json"));
    let status = || -> Value {
        serde_json::from_str(&stdout(&lock_status(servers, &name, &["--json"]))).unwrap()
    };
    let free = status();
    assert_eq!(
        (
            &free["state"],
            &free["owners"],
            &free["token"],
            &free["quorum"]
        ),
        (&json!("free"), &json!([]), &json!(null), &json!(3))
    );
    let _holders = [(); 2].map(|()| Holding::of(servers, &name, &["--shared"], &["sleep", "60"]));
    eventually("both share it", async || {
        status()["owners"]
            .as_array()
            .is_some_and(|owners| owners.len() == 2)
    })
    .await;
    let held = status();
    assert_eq!(
        (&held["state"], &held["shared"], &held["voting"]),
        (&json!("held"), &json!(true), &json!(5))
    );
    let remaining_ms = held["remaining_ms"].as_u64().unwrap();
    assert!((1..=10_000).contains(&remaining_ms), "{remaining_ms}");
    assert_eq!(held["nodes"].as_array().unwrap().len(), 5);
    assert!(
        stdout(&lock_status(servers, &name, &[])).contains("shared by 2"),
        "as a table"
    );
}

#[tokio::test]
async fn the_lock_of_another_library_is_shown_as_well() {
    let (servers, name) = (five().await, name("stranger"));
    for server in servers {
        command::<()>(server, &["SET", &name, "stranger"]).await;
    }
    let output = lock_status(servers, &name, &[]);
    assert!(
        stdout(&output).contains("stranger")
            && stdout(&output).ends_with("held by a quorum: no token, no lease\n"),
        "{}",
        stdout(&output)
    );
    assert_eq!(exit_code(servers, &name, &["--wait", "0"], &["true"]), 75);
}

#[tokio::test]
async fn a_look_changes_nothing_and_does_not_wait_for_servers_that_hang() {
    let (servers, name) = (start(3).await, name("status"));
    assert_eq!(exit_code(&servers, &name, &[], &["true"]), 0);
    let changes = async || {
        let info: redis::InfoDict = command(&servers[0], &["INFO", "persistence"]).await;
        info.get::<u64>("rdb_changes_since_last_save").unwrap()
    };
    let before = changes().await;
    // It stays paused until there is an output.
    servers[1].pause().await.unwrap();
    let mut status = Command::from(status_command(&servers, &name, &[]));
    let output = status.kill_on_drop(true).output();
    let output = in_time("a status without the server that hangs", output).await;
    servers[1].resume().await.unwrap();
    let output = output.unwrap();
    assert_eq!(code(&output), 0, "{}", stdout(&output));
    let silent = format!(":{} ", servers[1].port());
    let table = stdout(&output);
    let row = table.lines().find(|line| line.contains(&silent));
    assert!(
        row.is_some_and(|row| row.contains("does not answer")),
        "{table}"
    );
    assert_eq!(before, changes().await);
    assert!(before > 0, "they are counted");
}

//! Commands for a running service: `stockade items` and `stockade orders`.

use std::{fs, path::Path, process::Output};

use serde_json::{Value, json};
use testkit::eventually;

use crate::process::{Serving, order, stockade, token};

const PAGE: &str = include_str!("../../../../docs/cli.md");

/// The first block of the page in this language.
fn block(language: &str) -> &'static str {
    let (_, after) = PAGE.split_once(&format!("```{language}\n")).unwrap();
    after.split_once("```").unwrap().0
}

fn run(dir: &Path, line: &str) -> Output {
    stockade(dir)
        .args(line.split_whitespace())
        .output()
        .unwrap()
}

/// What a command prints that succeeds.
fn printed(dir: &Path, line: &str) -> String {
    let output = run(dir, line);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn json_of(dir: &Path, line: &str) -> Value {
    serde_json::from_str(&printed(dir, &format!("{line} --json"))).unwrap()
}

/// What a command says that fails.
fn refusal(dir: &Path, line: &str) -> String {
    let output = run(dir, line);
    assert_eq!(output.status.code(), Some(2), "{line}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_page_do_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let service = Serving::up(dir);
    fs::write(dir.join("sale.toml"), block("toml")).unwrap();
    let mut outputs = Vec::new();
    for line in block("sh").lines() {
        let line = line.strip_prefix("stockade ").unwrap();
        let line = line.replace("sale.toml", &dir.join("sale.toml").display().to_string());
        outputs.push(printed(dir, &line));
        if line.starts_with("items open") {
            let ann = token(dir, &["buyer", "ann"]);
            let ordered = order(&reqwest::Client::new(), &service.url, "jug", &ann, "k");
            assert_eq!(ordered.send().await.unwrap().status(), 201);
        }
    }
    let [
        _,
        list,
        _,
        _,
        _,
        held,
        exported,
        set,
        added,
        waves,
        planned,
        applied,
        shown,
        refunds,
    ] = &outputs[..]
    else {
        panic!("{outputs:?}");
    };
    assert!(set.contains("20") && !set.contains("30"), "{set}");
    assert!(added.contains("20") && added.contains("30"), "{added}");
    assert_eq!(added, waves);
    assert!(refunds.contains("idempotency_key"), "{refunds}");
    assert!(list.contains("jug") && list.contains("demo"), "{list}");
    assert!(held.contains("ann") && held.contains("1999"), "{held}");
    let mut lines = exported.lines();
    let head = "id,item,buyer,state,quantity,amount,currency,created_at,expires_at,version";
    assert_eq!(lines.next(), Some(head));
    let row = lines.next().unwrap();
    assert!(row.contains(",jug,ann,held,1,1999,EUR,"), "{row}");
    assert_eq!(lines.next(), None);
    let changes = "jug: changed stock, limit_per_buyer, closes_at, waves\nbowl: created\n";
    assert_eq!((&**planned, &**applied), (changes, changes));
    let shown: Value = serde_json::from_str(shown).unwrap();
    let fields = [&shown["stock"], &shown["limit_per_buyer"], &shown["state"]];
    assert_eq!(fields, [&json!(80), &json!(4), &json!("open")], "{shown}");
    let wave = json!([{ "at": "2026-12-31T10:00:00Z", "units": 20, "added": false }]);
    assert_eq!(shown["waves"], wave, "{shown}");
    assert_eq!(json_of(dir, "items waves show jug"), wave);
    assert_eq!(json_of(dir, "items show bowl")["state"], "paused");
    let again = printed(
        dir,
        &format!("items apply {}", dir.join("sale.toml").display()),
    );
    assert_eq!(again, "jug: unchanged\nbowl: unchanged\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_cancelled_and_a_change_with_a_key_is_made_once() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let service = Serving::up(dir);
    let ann = token(dir, &["buyer", "ann"]);
    let ordered = order(&reqwest::Client::new(), &service.url, "demo", &ann, "k");
    let ordered: Value = ordered.send().await.unwrap().json().await.unwrap();
    let id = ordered["id"].as_str().unwrap();
    assert_eq!(json_of(dir, &format!("orders show {id}"))["state"], "held");
    assert_eq!(
        json_of(dir, &format!("orders cancel {id}"))["state"],
        "cancelled"
    );
    let orders = json_of(dir, "orders list demo");
    assert_eq!(orders[0]["id"].as_str(), Some(id));
    assert_eq!(orders.as_array().unwrap().len(), 1);
    for _ in 0..2 {
        assert_eq!(
            json_of(dir, "items add demo 7 --key delivery-1")["stock"],
            10_007
        );
    }
    assert!(refusal(dir, &format!("orders refund {id}")).contains("order_not_refundable"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_units_of_a_wave_are_no_reason_to_withdraw_some() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let _service = Serving::up(dir);
    let file = dir.join("sale.toml");
    let past = "2026-01-01T00:00:00Z";
    let text =
        format!("[[items]]\nid = \"jug\"\nstock = 5\nwaves = [{{ at = \"{past}\", units = 7 }}]\n");
    fs::write(&file, text).unwrap();
    let apply = format!("items apply {}", file.display());
    assert_eq!(printed(dir, &apply), "jug: created\n");
    eventually("the units of the wave", async || {
        json_of(dir, "items show jug")["stock"] == 12
    })
    .await;
    assert_eq!(printed(dir, &apply), "jug: unchanged\n");
    let waves = json_of(dir, "items waves show jug");
    assert_eq!(waves, json!([{ "at": past, "units": 7, "added": true }]));
    assert!(refusal(dir, "items waves add jug now=5").contains("expected TIME=UNITS"));
    assert!(refusal(dir, "items waves add jug 2030-01-01T00:00:00Z=0").contains("waves"));
}

/// A command of the buyer ann.
fn as_ann(dir: &Path, line: &str) -> Output {
    let mut command = stockade(dir);
    command.env("STOCKADE_TOKEN", token(dir, &["buyer", "ann"]));
    command.args(line.split_whitespace()).output().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cart_is_placed_extended_cancelled_and_refunds_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let _service = Serving::up(dir);
    printed(
        dir,
        "items create jug --stock 5 --max-hold-seconds 1800 --currency EUR",
    );
    let ann = |line: &str| -> Value {
        let output = as_ann(dir, &format!("{line} --json"));
        assert!(output.status.success(), "{line}: {output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let command = |line: &'static str| line.strip_prefix("stockade ").unwrap();
    let mut lines = block("bash").lines();
    printed(dir, command(lines.next().unwrap()));
    assert!(lines.next().unwrap().starts_with("export STOCKADE_TOKEN="));
    let carts: Vec<_> = lines.map(|line| ann(command(line))).collect();
    let [placed, listed] = &carts[..] else {
        panic!("{carts:?}");
    };
    let id = placed["id"].as_str().unwrap();
    assert_eq!(placed["state"], "held", "{placed}");
    let lines = placed["lines"].as_array().unwrap();
    let jug = lines.iter().find(|line| line["item"] == "jug").unwrap();
    assert_eq!((&jug["quantity"], lines.len()), (&json!(2), 2), "{placed}");
    assert_eq!(listed[0]["id"], id, "{listed}");
    assert_eq!(ann("carts place jug:2 cup --key cart-1")["id"], id);
    let refused = as_ann(dir, "carts place jug:3 cup --key cart-1");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("idempotency_key_reused"));
    assert_eq!(json_of(dir, &format!("carts show {id}"))["state"], "held");
    let refused = refusal(dir, &format!("carts extend {id} 1800"));
    assert!(refused.contains("seconds"), "cup allows no more: {refused}");
    let refused = refusal(dir, &format!("carts refund {id}"));
    assert!(refused.contains("cart_not_refundable"), "{refused}");
    let cancelled = json_of(dir, &format!("carts cancel {id}"));
    assert_eq!(cancelled["state"], "cancelled");
    let alone = ann("carts place jug");
    let extended = format!("carts extend {} 1800", alone["id"].as_str().unwrap());
    assert_ne!(json_of(dir, &extended)["expires_at"], alone["expires_at"]);
    assert_eq!(ann("carts place cup --amount 5000")["amount"], 5000);
    let refused = as_ann(dir, "carts place cup --amount 5");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("amount"));
    let unchecked = json_of(dir, "carts place cup --amount unchecked --buyer bob");
    assert_eq!(unchecked["amount_check"], "unchecked", "{unchecked}");
    assert_eq!(json_of(dir, "items price cup 950")["price"], 950);
    assert_eq!(ann("carts place cup")["amount"], 950);
    assert!(refusal(dir, "carts place cup --amount 9.99").contains("whole number"));
    assert_eq!(json_of(dir, "refunds list"), json!([]));
    assert!(refusal(dir, "refunds done no-such").contains("refund"));
    assert!(refusal(dir, "carts place jug:none").contains("ITEM:UNITS"));
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_followed_and_webhooks_managed() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let service = Serving::up(dir);
    let ann = token(dir, &["buyer", "ann"]);
    let ordered = order(&reqwest::Client::new(), &service.url, "demo", &ann, "k");
    assert_eq!(ordered.send().await.unwrap().status(), 201);
    let events = printed(dir, "events tail --no-wait");
    let kinds: Vec<_> = events
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|event| event["subject"] == "demo")
        .map(|event| event["type"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kinds.last().unwrap(), "stockade.order.held", "{events}");
    assert_eq!(printed(dir, "events tail --after now --no-wait"), "");

    let added = json_of(
        dir,
        "webhooks add http://127.0.0.1:1/hook --kind order.held",
    );
    let id = added["id"].as_str().unwrap();
    assert!(
        added["secret"].as_str().unwrap().starts_with("whsec_"),
        "{added}"
    );
    let tested = json_of(dir, &format!("webhooks test {id}"));
    assert_eq!(tested["delivered"], false, "nothing listens there");
    let listed = printed(dir, "webhooks list");
    assert!(
        listed.contains(id) && !listed.contains("whsec_"),
        "{listed}"
    );
    printed(dir, &format!("webhooks enable {id}"));
    printed(dir, &format!("webhooks remove {id}"));
    assert!(refusal(dir, &format!("webhooks remove {id}")).contains("webhook_not_found"));
    assert!(
        refusal(dir, "webhooks add http://127.0.0.1:1 --kind order.lost")
            .contains("expected one of")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_done_is_said_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let _service = Serving::up(dir);
    let file = |name: &str, text: &str| {
        let path = dir.join(name);
        fs::write(&path, text).unwrap();
        format!("items apply {}", path.display())
    };
    let new = "[[items]]\nid = \"new\"\nstock = 1\n";
    for (line, expected) in [
        (
            file(
                "fixed.toml",
                &format!("{new}[[items]]\nid = \"demo\"\nstock = 1\ntitle = \"Other\"\n"),
            ),
            "demo: title cannot change",
        ),
        (
            file("incomplete.toml", "[[items]]\nid = \"demo\"\n"),
            "stock",
        ),
        (
            file(
                "unknown.toml",
                "[[items]]\nid = \"demo\"\nstock = 1\ncolour = \"red\"\n",
            ),
            "colour",
        ),
        (file("items.toml", "items = 3\n"), "items.toml"),
        ("items apply missing.toml".into(), "missing.toml"),
        ("items show no-such-item".into(), "item_not_found"),
        ("items create a/b --stock 1".into(), "id"),
        ("orders list demo --state lost".into(), "expected held"),
        ("orders show nonsense".into(), "nonsense"),
        (
            "items list --url ftp://host".into(),
            "url: expected an address",
        ),
        (
            "items list --url http://127.0.0.1:1".into(),
            "outcome is unknown",
        ),
    ] {
        let error = refusal(dir, &line);
        assert!(error.contains(expected), "{line}: {error}");
    }
    let items = json_of(dir, "items list");
    assert_eq!(items.as_array().unwrap().len(), 1, "{items}");
    let mut command = stockade(dir);
    command
        .env("STOCKADE_TOKEN", "not-a-token-of-an-admin")
        .args(["items", "list"]);
    let output = command.output().unwrap();
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("unauthorized"),
        "{output:?}"
    );
    for shell in ["bash", "zsh", "fish"] {
        let script = printed(dir, &format!("completions {shell}"));
        assert!(
            script.contains("stockade") && script.contains("apply"),
            "{shell}"
        );
    }
}

//! `stockade up`.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    process::Command,
};

use reqwest::Client;
use serde_json::{Value, json};

use crate::{
    crashes::{Rush, replay, wait_for},
    process::{Serving, audit, create, order, run, settled_audit, stderr, stdout, stockade, token},
};

#[tokio::test(flavor = "multi_thread")]
async fn what_up_prints_works_as_pasted() {
    // A path that means something to a shell and in a URL.
    let folder = tempfile::Builder::new()
        .prefix("a b'c%20d?e#")
        .tempdir()
        .unwrap();
    let mut up = Serving::up(folder.path());
    assert!(folder.path().join("ledger.db").exists());
    let commands: Vec<_> = up
        .printed
        .iter()
        .filter(|line| line.contains("token") || line.contains("audit"))
        .cloned()
        .collect();
    assert_eq!(commands.len(), 4, "{:?}", up.printed);
    let admin = token(folder.path(), &["admin"]);
    let expected = [&admin, "201 Created", "\"segments\"", "drift 0"];
    for (command, expected) in commands.iter().zip(expected) {
        let output = Command::new("sh").args(["-c", command]).output().unwrap();
        assert!(
            output.status.success() && stdout(&output).contains(expected),
            "{command}\n{}{}",
            stdout(&output),
            stderr(&output)
        );
    }
    assert_eq!(up.interrupt(), Some(0), "Ctrl-C is how it ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_folder_that_all_may_read_only_the_user_may_read_the_files() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut up = Serving::up(folder.path());
    assert_eq!(up.interrupt(), Some(0));
    let (mut folders, mut files) = (vec![folder.path().to_owned()], 0);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::metadata(&path).unwrap();
            assert_eq!(metadata.mode() & 0o077, 0, "{}", path.display());
            if metadata.is_dir() {
                folders.push(path);
            } else {
                files += 1;
            }
        }
    }
    assert!(files > 6, "the ledger, and the files of six servers");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_folder_keeps_its_data_and_its_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let mut up = Serving::up(folder.path());
    let ann = token(folder.path(), &["buyer", "ann"]);
    let first: Value = order(&Client::new(), &up.url, "demo", &ann, "k")
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(up.interrupt(), Some(0));
    let up = Serving::up(folder.path());
    let again = order(&Client::new(), &up.url, "demo", &ann, "k")
        .send()
        .await
        .unwrap();
    assert_eq!(again.headers()["idempotent-replayed"], "true");
    assert_eq!(again.json::<Value>().await.unwrap(), first);
    settled_audit(folder.path(), "demo").await;
    let secrets = std::fs::metadata(folder.path().join("run.toml")).unwrap();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&secrets.permissions()) & 0o077,
        0,
        "other users cannot read them"
    );
}

/// The URLs of the six servers, as `up` writes them.
fn redis_urls(folder: &Path) -> Vec<String> {
    let run_file: toml::Table = fs::read_to_string(folder.join("run.toml"))
        .unwrap()
        .parse()
        .unwrap();
    let text = |key: &str| run_file[key].as_str().unwrap().to_owned();
    let locks = text("lock_urls");
    let locks = locks.split(',').map(|url| url.split('?').next().unwrap());
    [text("redis_url")]
        .into_iter()
        .chain(locks.map(str::to_owned))
        .collect()
}

/// The password in the URL, and the URL without it.
fn without_password(url: &str) -> (String, String) {
    let rest = url
        .strip_prefix("redis://:")
        .unwrap_or_else(|| panic!("{url}"));
    let (password, address) = rest.split_once('@').unwrap();
    (password.to_owned(), format!("redis://{address}"))
}

/// Whether the server obeys a command that comes over this URL.
async fn obeys(url: &str) -> bool {
    let Ok(mut connection) = testbed::patient_connection(url).await else {
        return false;
    };
    redis::cmd("PING").exec_async(&mut connection).await.is_ok()
}

/// The command lines of all processes, as every user of the machine sees them.
fn command_lines() -> String {
    let lines = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        // A process may end meanwhile, and not every folder is one.
        let line = fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn its_redis_servers_ask_for_a_password_that_only_the_user_can_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut up = Serving::up(folder.path());
    let urls = redis_urls(folder.path());
    assert_eq!(urls.len(), 6, "{urls:?}");
    let (password, _) = without_password(&urls[0]);
    assert!(password.len() >= 32, "{password}");
    let processes = command_lines();
    for url in &urls {
        let (own, address) = without_password(url);
        assert_eq!(own, password);
        assert!(obeys(url).await, "{url}");
        assert!(!obeys(&address).await, "{address} needs no password");
        assert!(!obeys(&url.replace(&own, "another")).await, "{address}");
        let port = address.rsplit(':').next().unwrap();
        assert!(
            processes.contains(&format!("127.0.0.1:{port}")),
            "{processes}"
        );
    }
    assert!(!processes.contains(&password), "{processes}");
    let printed = up.printed.join("\n");
    assert!(!printed.contains(&password), "{printed}");

    let servers = folder.path().join("redis");
    let names = ["stock", "lock-1", "lock-2", "lock-3", "lock-4", "lock-5"];
    let configurations = names.map(|name| servers.join(name).join("redis.conf"));
    for file in configurations.into_iter().chain([servers.join("password")]) {
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(&password), "{}", file.display());
        let mode = fs::metadata(&file).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
    assert_eq!(up.interrupt(), Some(0));
    let _up = Serving::up(folder.path());
    let again = redis_urls(folder.path());
    assert_eq!(without_password(&again[0]).0, password, "it stays");
}

/// As a version left it that knew no passwords.
fn without_passwords(folder: &Path, password: &str) {
    let servers = folder.join("redis");
    fs::remove_file(servers.join("password")).unwrap();
    let run_file = folder.join("run.toml");
    let text = fs::read_to_string(&run_file).unwrap();
    fs::write(&run_file, text.replace(&format!(":{password}@"), "")).unwrap();
    for entry in fs::read_dir(&servers).unwrap() {
        let file = entry.unwrap().path().join("redis.conf");
        let text = fs::read_to_string(&file).unwrap();
        let lines = text.lines().filter(|line| !line.contains(password));
        let text = lines.collect::<Vec<_>>().join("\n");
        fs::write(&file, text + "\n").unwrap();
        // Other users could read it.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_without_a_password_gets_one_and_keeps_its_data() {
    let folder = tempfile::tempdir().unwrap();
    let mut up = Serving::up(folder.path());
    let ann = token(folder.path(), &["buyer", "ann"]);
    let placed = order(&Client::new(), &up.url, "demo", &ann, "k");
    let first: Value = placed.send().await.unwrap().json().await.unwrap();
    assert_eq!(up.interrupt(), Some(0));
    let (old, _) = without_password(&redis_urls(folder.path())[0]);
    without_passwords(folder.path(), &old);

    let up = Serving::up(folder.path());
    for url in redis_urls(folder.path()) {
        let (password, address) = without_password(&url);
        assert_ne!(password, old);
        assert!(obeys(&url).await && !obeys(&address).await, "{address}");
    }
    let file = folder.path().join("redis/stock/redis.conf");
    assert_eq!(fs::metadata(file).unwrap().mode() & 0o777, 0o600);
    let placed = order(&Client::new(), &up.url, "demo", &ann, "k");
    let again = placed.send().await.unwrap();
    assert_eq!(again.headers()["idempotent-replayed"], "true");
    assert_eq!(again.json::<Value>().await.unwrap(), first);
    settled_audit(folder.path(), "demo").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_in_one_folder_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let _up = Serving::up(folder.path());
    let output = run(stockade(folder.path()).args(["up", "--listen", "127.0.0.1:0"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--dir"), "{}", stderr(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_status_of_audit_reports_drift() {
    let folder = tempfile::tempdir().unwrap();
    // Without the reconciler, so that nothing repairs the drift that the audit must find.
    let up = Serving::up_with(folder.path(), &["--roles", "order,recorder"]);
    let exit = |item: &str| {
        run(stockade(folder.path()).args(["audit", item]))
            .status
            .code()
    };
    assert_eq!(exit("demo"), Some(0));
    assert_eq!(exit("no-such-item"), Some(2));
    assert_eq!(exit("no such item"), Some(2));
    let told = || stdout(&run(stockade(folder.path()).args(["audit", "demo"])));
    assert!(told().contains("orders: never compared"), "{}", told());
    let full = run(stockade(folder.path()).args(["audit", "demo", "--full"]));
    assert!(full.status.success(), "{}", stderr(&full));
    assert!(
        stderr(&full).contains("0 orders read, 100 %"),
        "how far it is: {}",
        stderr(&full)
    );
    assert!(told().contains("orders: all agreed"), "{}", told());
    let admin = token(folder.path(), &["admin"]);
    create(&up.url, &admin, &json!({ "id": "vase", "stock": 5 })).await;
    let run_file: toml::Table = std::fs::read_to_string(folder.path().join("run.toml"))
        .unwrap()
        .parse()
        .unwrap();
    let redis_url = run_file["redis_url"].as_str().unwrap();
    let mut redis = testbed::patient_connection(redis_url).await.unwrap();
    let stock = "stock:{vase:0}";
    for (units, drift) in [(1, 1), (-2, -1), (1, 0)] {
        redis::cmd("HINCRBY")
            .arg(stock)
            .arg("available")
            .arg(units)
            .exec_async(&mut redis)
            .await
            .unwrap();
        let report = audit(folder.path(), "vase");
        assert_eq!(report["segments"][0]["drift"], json!(drift));
        assert_eq!(report["drift"].as_i64(), Some(i64::abs(drift)));
        assert_eq!(exit("vase"), Some(i32::from(drift != 0)));
    }
    redis::cmd("DEL")
        .arg("outbox:{vase:0}")
        .exec_async(&mut redis)
        .await
        .unwrap();
    assert_eq!(exit("vase"), Some(1), "a history that is gone is drift");
    assert!(audit(folder.path(), "vase")["segments"][0]["finding"].is_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn after_kill_9_of_everything_a_new_up_continues_with_every_acknowledged_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut up = Serving::up(folder.path());
    let admin = token(folder.path(), &["admin"]);
    create(
        &up.url,
        &admin,
        &json!({ "id": "rush", "stock": 3000, "segments": 4, "limit_per_buyer": 2 }),
    )
    .await;
    create(
        &up.url,
        &admin,
        &json!({ "id": "fast", "stock": 3000, "segments": 4, "durability": "accepted" }),
    )
    .await;
    let tokens: Vec<_> = (0..20)
        .map(|buyer| token(folder.path(), &["buyer", &format!("buyer-{buyer}")]))
        .collect();

    let url = up.url.clone();
    let rush = Rush {
        url: &url,
        items: &["rush", "fast"],
        tokens: &tokens,
        orders: 60,
        insists: false,
    };
    let acknowledged = rush
        .run(async |done| {
            wait_for(done, 100).await;
            up.kill();
        })
        .await;
    assert!(
        acknowledged.len() >= 100,
        "{} acknowledged",
        acknowledged.len()
    );

    let up = Serving::up(folder.path());
    replay(&up.url, &tokens, &acknowledged).await;
    for item in ["rush", "fast", "demo"] {
        settled_audit(folder.path(), item).await;
    }
}

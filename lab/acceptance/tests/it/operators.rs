//! The operators' endpoints of a process without the role `order`.

use reqwest::Client;
use serde_json::{Value, json};
use testbed::free_port;
use testkit::eventually;

use crate::{
    process::{Serving, create, program, settled_audit, stderr, stockade},
    test_env::TestEnv,
};

async fn get(url: &str, path: &str) -> (u16, String) {
    let response = Client::new()
        .get(format!("{url}{path}"))
        .send()
        .await
        .unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_without_an_api_tell_how_they_are_where_an_address_is_set() {
    let env = TestEnv::new().await;
    let service = Serving::serve(env.dir(), free_port().await, &["--roles", "order"]).await;
    create(
        &service.url,
        &env.admin,
        &json!({ "id": "vase", "stock": 10 }),
    )
    .await;
    let mut keeper = Serving::serve(
        env.dir(),
        free_port().await,
        &["--roles", "recorder,reconciler"],
    )
    .await;
    env.hold(&service.url, "vase", "k").await;
    assert_eq!(get(&keeper.url, "/healthz").await.0, 200);
    eventually("the metric that must be 0", async || {
        let metrics = get(&keeper.url, "/metrics").await.1;
        metrics.contains("stockade_drift_units{item=\"vase\"} 0")
    })
    .await;
    for path in ["/v1/items", "/v1/items/vase", "/docs", "/openapi.json"] {
        let (status, body) = get(&keeper.url, path).await;
        let problem: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            (status, &problem["code"]),
            (404, &json!("not_found")),
            "{path}"
        );
    }
    env.redis.pause().await.unwrap();
    eventually(
        "a keeper that knows that its Redis does not answer",
        async || get(&keeper.url, "/readyz").await.0 == 503,
    )
    .await;
    assert_eq!(
        get(&keeper.url, "/healthz").await.0,
        200,
        "and it runs all the same"
    );
    env.redis.resume().await.unwrap();
    assert_eq!(keeper.interrupt(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn with_an_address_for_operators_buyers_reach_neither_metrics_nor_docs() {
    let env = TestEnv::new().await;
    let operators = format!("127.0.0.1:{}", free_port().await);
    let flags = ["--roles", "order", "--operators-listen", &operators];
    let mut service = Serving::serve(env.dir(), free_port().await, &flags).await;
    let item = json!({ "id": "vase", "stock": 10 });
    create(&service.url, &env.admin, &item).await;
    let operators = format!("http://{operators}");
    for path in ["/metrics", "/docs/", "/openapi.json"] {
        assert_eq!(get(&service.url, path).await.0, 404, "{path} for buyers");
        assert_eq!(get(&operators, path).await.0, 200, "{path} for operators");
    }
    for path in ["/healthz", "/readyz"] {
        for url in [&service.url, &operators] {
            assert_eq!(get(url, path).await.0, 200, "{url}{path}");
        }
    }
    assert_eq!(get(&service.url, "/v1/items/vase").await.0, 200);
    assert_eq!(get(&operators, "/v1/items/vase").await.0, 404);
    assert_eq!(service.interrupt(), Some(0));
}

/// Two processes on one machine would both use the default address, and one could not start.
#[tokio::test(flavor = "multi_thread")]
async fn roles_without_an_api_listen_only_on_a_configured_address() {
    let env = TestEnv::new().await;
    let service = Serving::serve(env.dir(), free_port().await, &["--roles", "order"]).await;
    let (mut recorder, mut another) = (Serving::recorder(env.dir()), Serving::recorder(env.dir()));
    let mut reconciler = Serving::in_the_background(env.dir(), "reconciler");
    create(
        &service.url,
        &env.admin,
        &json!({ "id": "vase", "stock": 10, "hold_seconds": 1 }),
    )
    .await;
    let order = env.hold(&service.url, "vase", "k").await;
    env.becomes(&service.url, &order, "expired").await;
    settled_audit(env.dir(), "vase").await;
    for process in [&mut recorder, &mut another, &mut reconciler] {
        assert_eq!(
            process.interrupt(),
            Some(0),
            "it has been at work until now"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_of_the_json_log_carries_the_id_of_the_request() {
    let env = TestEnv::new().await;
    let log = env.dir().join("log");
    let mut command = stockade(env.dir());
    command
        .env("STOCKADE_LOG_FORMAT", "json")
        .stderr(std::fs::File::create(&log).unwrap());
    let service = Serving::serve_by(command, free_port().await, &["--roles", "order"]).await;
    env.redis.pause().await.unwrap();
    eventually("a request that fails", async || {
        let request = Client::new().post(format!("{}/v1/items", service.url));
        let request = request.json(&json!({ "id": "vase", "stock": 1 }));
        let request = request
            .bearer_auth(&env.admin)
            .header("X-Request-Id", "r-1");
        request.send().await.unwrap().status() == 503
    })
    .await;
    env.redis.resume().await.unwrap();
    let text = std::fs::read_to_string(log).unwrap();
    let lines = text.lines().map(|line| {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{line}: {error}"))
    });
    let lines: Vec<_> = lines.collect();
    let failed = |line: &&Value| line["request_id"] == "r-1" && line["level"] == "WARN";
    let line = lines.iter().find(failed);
    assert!(
        line.is_some_and(|line| line["message"].is_string()),
        "{text}"
    );
}

const UNITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/systemd");

/// Where systemd is installed.
#[test]
fn systemd_accepts_the_units() {
    let folder = tempfile::tempdir().unwrap();
    let mut paths = Vec::new();
    for unit in std::fs::read_dir(UNITS).unwrap() {
        let unit = unit.unwrap();
        let text = std::fs::read_to_string(unit.path()).unwrap();
        let program = program().display().to_string();
        // systemd checks that the program exists.
        let text = text.replace("/usr/local/bin/stockade", &program);
        let path = folder.path().join(unit.file_name());
        std::fs::write(&path, text).unwrap();
        paths.push(path);
    }
    let mut verify = std::process::Command::new("systemd-analyze");
    let Ok(output) = verify.arg("verify").args(&paths).output() else {
        testbed::skipped("systemd-analyze is not installed");
        return;
    };
    let complaints = stderr(&output);
    let about_ours = |path: &std::path::PathBuf| complaints.contains(&*path.to_string_lossy());
    assert!(
        output.status.success() && !paths.iter().any(about_ours),
        "{complaints}"
    );
}

/// Each role has a unit, and starts after the schema is up to date.
#[test]
fn the_units_of_all_roles_start_after_the_migration() {
    let unit = |name: &str| {
        let path = format!("{UNITS}/stockade-{name}.service");
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let has = |text: &str, name: &str, word: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once('='));
        lines.any(|(key, value)| key == name && value.split(' ').any(|found| found == word))
    };
    let migrate = unit("migrate");
    assert!(has(&migrate, "Type", "oneshot") && has(&migrate, "RemainAfterExit", "yes"));
    let mut ports = std::collections::BTreeSet::new();
    for role in ["order", "recorder", "reconciler", "publisher"] {
        let text = unit(role);
        for name in ["After", "Wants"] {
            assert!(has(&text, name, "stockade-migrate.service"), "{role}");
        }
        // A restart of the migration would restart the service with it.
        assert!(!text.contains("Requires="), "{role}");
        let listen = text.split("STOCKADE_LISTEN=").nth(1).unwrap();
        let listen = listen.split_whitespace().next().unwrap();
        assert!(ports.insert(listen.to_owned()), "{role}: {listen} is taken");
    }
}

/// A manifest with a name that no setting has would be refused, or ignored, on the day of the sale.
#[test]
fn what_is_deployed_sets_only_settings_that_exist() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let settings = std::fs::read_to_string(format!("{root}/docs/settings.md")).unwrap();
    let is_known = |name: &str| {
        let name = name.strip_suffix("_FILE").unwrap_or(name);
        settings.contains(&format!("`{name}`"))
    };
    let folders = ["kubernetes/base", "kubernetes/monitoring", "systemd"];
    let mut names = 0;
    for folder in folders {
        for file in std::fs::read_dir(format!("{root}/deploy/{folder}")).unwrap() {
            let path = file.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let uncommented = text.lines().filter(|line| !line.trim().starts_with('#'));
            for name in uncommented.flat_map(setting_names) {
                assert!(is_known(name), "{}: {name}", path.display());
                names += 1;
            }
        }
    }
    assert!(names > 20, "only {names} settings were found");
}

/// The words of a line that look like the names of settings.
fn setting_names(line: &str) -> impl Iterator<Item = &str> {
    line.split(|letter: char| letter != '_' && !letter.is_ascii_alphanumeric())
        .filter(|word| {
            word.starts_with("STOCKADE_")
                || matches!(*word, "REDIS_URL" | "LOCK_URLS" | "DATABASE_URL")
        })
}

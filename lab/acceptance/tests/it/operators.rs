//! The operators' endpoints of a process without the role `order`.

use reqwest::Client;
use serde_json::{Value, json};
use testbed::free_port;
use testkit::eventually;

use crate::{
    process::{AT_LISTEN, Serving, polling_client, program, settled_audit, stderr, stockade},
    test_env::TestEnv,
};

async fn get(url: &str, path: &str) -> (u16, String) {
    let response = polling_client()
        .get(format!("{url}{path}"))
        .send()
        .await
        .unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_without_an_api_tell_how_they_are_where_an_address_is_set() {
    let env = TestEnv::new().await;
    let service = env.serve(&["--roles", "order"]).await;
    env.sells(&service.url, "vase", 10).await;
    let mut keeper = env.serve(&["--roles", "recorder,reconciler"]).await;
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
    let mut service = env.serve(&flags).await;
    let item = json!({ "id": "vase", "stock": 10 });
    env.create(&service.url, &item).await;
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

const OPERATORS_PAGES: [&str; 5] = [
    "/metrics",
    "/docs/",
    "/openapi.json",
    "/console",
    "/console/login",
];

/// What buyers reach must not depend on a setting that an operator has forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn without_an_address_for_operators_nothing_of_theirs_is_served_unless_it_is_told_so() {
    let env = TestEnv::new().await;
    let serve = async |flags: &[&str]| env.serve(flags).await;
    let service = serve(&["--roles", "order"]).await;
    for path in OPERATORS_PAGES {
        assert_eq!(get(&service.url, path).await.0, 404, "{path}");
    }
    // Problems refer to it.
    for path in ["/healthz", "/readyz", "/docs/problems"] {
        assert_eq!(get(&service.url, path).await.0, 200, "{path}");
    }
    let told = serve(&["--roles", "order", AT_LISTEN]).await;
    for path in OPERATORS_PAGES {
        assert_eq!(get(&told.url, path).await.0, 200, "{path}");
    }
}

/// Sessions of the console are known where they began, so the pages have one place.
#[test]
fn operators_pages_in_two_places_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = stockade(folder.path());
    command.args(["config", AT_LISTEN, "--operators-listen", "127.0.0.1:0"]);
    let output = testkit::program::run(&mut command);
    let error = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("--operators-at-listen"), "{error}");
    assert!(error.contains("STOCKADE_OPERATORS_LISTEN"), "{error}");
}

/// `up` at an address that other machines reach.
#[tokio::test(flavor = "multi_thread")]
async fn up_serves_operators_where_only_this_machine_reaches_it() {
    let folder = tempfile::tempdir().unwrap();
    let up = Serving::up_at(folder.path(), "0.0.0.0:0", &[]);
    let buyers = up.url.replace("0.0.0.0", "127.0.0.1");
    let console = up.printed.iter().find_map(|line| {
        let rest = line.strip_prefix("Console:")?.trim();
        rest.split("/console").next()
    });
    let operators = console.unwrap_or_else(|| panic!("{:?}", up.printed));
    assert!(operators.starts_with("http://127.0.0.1:"), "{operators}");
    let reference = format!("API reference: {operators}/docs");
    assert!(up.printed.contains(&reference), "{:?}", up.printed);
    for path in OPERATORS_PAGES {
        assert_eq!(get(&buyers, path).await.0, 404, "{path} for buyers");
        assert_eq!(get(operators, path).await.0, 200, "{path} for operators");
    }

    let folder = tempfile::tempdir().unwrap();
    let up = Serving::up(folder.path());
    for path in OPERATORS_PAGES {
        assert_eq!(
            get(&up.url, path).await.0,
            200,
            "{path} on a loopback address"
        );
    }
    let reference = format!("API reference: {}/docs", up.url);
    assert!(up.printed.contains(&reference), "{:?}", up.printed);
}

/// The page is rendered once a second at most. It shows the processor time, so two renderings
/// differ.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_requests_for_the_metrics_renders_them_once_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let up = Serving::up(folder.path());
    let begin = std::time::Instant::now();
    let mut pages = std::collections::HashSet::new();
    // Long enough for several renderings.
    while begin.elapsed() < std::time::Duration::from_secs(3) {
        let (status, page) = get(&up.url, "/metrics").await;
        assert_eq!(status, 200);
        pages.insert(page);
    }
    let seconds = begin.elapsed().as_secs();
    let renderings = u64::try_from(pages.len()).unwrap();
    assert!(
        renderings <= seconds + 2,
        "{renderings} different pages in {seconds} s"
    );
}

/// Two processes on one machine would both use the default address, and one could not start.
#[tokio::test(flavor = "multi_thread")]
async fn roles_without_an_api_listen_only_on_a_configured_address() {
    let env = TestEnv::new().await;
    let service = env.serve(&["--roles", "order"]).await;
    let (mut recorder, mut another) = (Serving::recorder(env.dir()), Serving::recorder(env.dir()));
    let mut reconciler = Serving::in_the_background(env.dir(), "reconciler");
    env.create(
        &service.url,
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

/// A client writes no header that names its address: the proxy removes all of them, and adds its
/// own.
#[test]
fn the_proxy_passes_on_no_address_that_a_client_has_written() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../deploy/compose/haproxy.cfg"
    );
    let config = std::fs::read_to_string(path).unwrap();
    let sections: Vec<_> = config.split("\nfrontend ").collect();
    assert!(
        sections.len() > 2,
        "expected the frontends of buyers and operators"
    );
    let defaults = sections[0];
    let adds = |line: &str| line.trim() == "option forwardfor";
    assert!(defaults.lines().any(adds), "{defaults}");
    for frontend in &sections[1..] {
        let frontend = frontend.split("\nbackend ").next().unwrap();
        for header in ["Forwarded", "X-Forwarded-For", "X-Real-IP"] {
            let removes = format!("http-request del-header {header}");
            let mut lines = frontend.lines().map(str::trim);
            assert!(lines.any(|line| line == removes), "{header}: {frontend}");
        }
    }
    // Buyers and operators come in by different ports, and go on to different ports.
    for (backend, port) in [("order", "order:8080"), ("console", "order:8081")] {
        let begin = format!("\nbackend {backend}\n");
        let section = config.split(&begin).nth(1).unwrap();
        let section = section.split("\nbackend ").next().unwrap();
        assert!(section.contains(port), "{section}");
    }
}

/// A proxy that waits for the rest of a request for as long as a connection may be idle is filled
/// with halves.
#[test]
fn the_proxy_waits_for_whole_requests_and_not_for_long() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../deploy/compose/haproxy.cfg"
    );
    let config = std::fs::read_to_string(path).unwrap();
    let seconds = |name: &str| -> u32 {
        let lines = config.lines().map(str::trim);
        let mut values = lines.filter_map(|line| line.strip_prefix(name)?.strip_suffix('s'));
        values
            .next()
            .and_then(|text| text.parse().ok())
            .expect(name)
    };
    let whole = seconds("timeout http-request ");
    // Without it, the time of a request would be that of an idle connection, too.
    assert!(whole < seconds("timeout http-keep-alive "), "{config}");
    let mut lines = config.lines().map(str::trim);
    assert!(lines.any(|line| line == "option http-buffer-request"));
}

/// What each way of deployment sets for its order services.
#[test]
fn limits_are_on_wherever_order_services_are_deployed() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let files = [
        "docker-compose.yml",
        "deploy/kubernetes/base/settings.yaml",
        "deploy/systemd/stockade-order.service",
    ];
    let manual = std::fs::read_to_string(format!("{root}/docs/operations.md")).unwrap();
    for file in files {
        let text = std::fs::read_to_string(format!("{root}/{file}")).unwrap();
        for (name, rate) in [
            ("STOCKADE_RATE_PER_BUYER", "20/60"),
            ("STOCKADE_RATE_PER_PEER", "500/5000"),
            ("STOCKADE_RATE_EXEMPT_PEERS", ""),
        ] {
            let mut lines = text.lines().filter(|line| !line.trim().starts_with('#'));
            let sets = |line: &str| line.contains(name) && line.contains(rate);
            assert!(lines.any(sets), "{file}: {name} {rate}");
            assert!(
                manual.contains(&format!("{name}={rate}")),
                "the manual: {name}"
            );
        }
    }
}

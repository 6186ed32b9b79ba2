//! The clients, against a real service behind a proxy that drops answers, cuts connections and
//! delays. Never two orders for one intent. Those of other languages run their own tests.

mod rust;

use std::{env, iter, path::Path, process::Stdio, sync::Arc, time::Duration};

use testbed::{Proxy, Traffic};
use testkit::timeout;
use tokio::{process::Command, time::sleep};

use crate::process::{Serving, settled_audit, token};

/// The time limit of one attempt of a client. A busy machine answers most of them in time.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);

/// What the proxy does, and for how many milliseconds.
type Fault = (Traffic, u64);

/// Faults that are over before a client gives an attempt up.
const SHORT_FAULTS: [Fault; 7] = [
    (Traffic::Pass, 100),
    // Orders are placed, and their answers are lost.
    (Traffic::HoldAnswers, 40),
    (Traffic::Reset, 10),
    (Traffic::Pass, 100),
    (Traffic::HoldRequests, 40),
    (Traffic::Reset, 10),
    (Traffic::Delay(Duration::from_millis(30)), 150),
];

/// Orders are placed, and their answers come after the client has given the attempt up.
const LATE_ANSWERS: [Fault; 2] = [
    (
        Traffic::HoldAnswers,
        ATTEMPT_TIMEOUT.as_millis() as u64 + 100,
    ),
    (Traffic::Pass, 100),
];

/// How often the short faults come between late answers. No client gets on while answers are late,
/// and with each round of short faults that took six sevenths of the time of the whole test.
const SHORT_ROUNDS: usize = 3;

/// The folder, the program and its arguments.
const CLIENTS: [(&str, &str, &[&str]); 2] = [
    ("python", "python3", &["-m", "unittest"]),
    ("js", "node", &["--test"]),
];

async fn inject(proxy: Arc<Proxy>) {
    // Late answers come every few seconds, so that a client that begins late meets some.
    let late = SHORT_FAULTS.into_iter().chain(LATE_ANSWERS);
    let short = iter::repeat_n(SHORT_FAULTS, SHORT_ROUNDS - 1).flatten();
    for (traffic, milliseconds) in late.chain(short).cycle() {
        proxy.set(traffic);
        sleep(Duration::from_millis(milliseconds)).await;
    }
}

/// The settings that the tests of a client read.
fn settings(folder: &Path, up: &Serving, proxy: &Proxy) -> Vec<(&'static str, String)> {
    let run_file = std::fs::read_to_string(folder.join("run.toml")).unwrap();
    let run_file: toml::Table = run_file.parse().unwrap();
    let secret = |name: &str| run_file[name].as_str().unwrap().to_owned();
    vec![
        ("STOCKADE_URL", format!("http://127.0.0.1:{}", proxy.port())),
        ("STOCKADE_DIRECT_URL", up.url.clone()),
        ("STOCKADE_ADMIN_TOKEN", token(folder, &["admin"])),
        ("STOCKADE_JWT_SECRET", secret("jwt_secret")),
        ("STOCKADE_PAYMENT_SECRET", secret("payment_secret")),
        ("STOCKADE_TEST_TIMEOUT", timeout().as_secs().to_string()),
        (
            "STOCKADE_TEST_ATTEMPT_TIMEOUT",
            ATTEMPT_TIMEOUT.as_secs().to_string(),
        ),
    ]
}

/// Whether it is on the PATH, or else its client is skipped with a message, except in CI.
pub fn has(program: &str) -> bool {
    let folders = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&folders).any(|folder| folder.join(program).is_file());
    if !found {
        let missing = format!("no {program} found: scripts/setup.sh test installs it");
        assert!(env::var_os("CI").is_none(), "{missing}");
        testbed::skipped(&missing);
    }
    found
}

async fn test(client: &str, program: &str, arguments: &[&str], settings: &[(&str, String)]) {
    if !has(program) {
        return;
    }
    let folder = format!("{}/../../clients/{client}", env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .envs(settings.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    let text = text.concat();
    for (_, why) in text.lines().filter_map(|line| line.split_once("SKIPPED: ")) {
        testbed::skipped(why);
    }
    // The line about intents comes from the test that needs the service.
    let summary = format!("{client}: ");
    let line = text
        .lines()
        .find_map(|line| line.find(&summary).map(|at| &line[at..]));
    assert!(
        output.status.success() && line.is_some(),
        "{program}: {text}"
    );
    eprintln!("{}", line.unwrap_or_default());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_intent_of_a_client_ends_as_exactly_one_order() {
    let folder = tempfile::tempdir().unwrap();
    // A cart that was not placed in time is refused for good, and a busy machine needs long for
    // one.
    let patient = [
        "--order-timeout-ms",
        "60000",
        "--request-timeout-ms",
        "90000",
    ];
    let up = Serving::up_with(folder.path(), &patient);
    let port = up.url.rsplit(':').next().unwrap().parse().unwrap();
    let proxy = Arc::new(Proxy::start(port).await.unwrap());
    let settings = settings(folder.path(), &up, &proxy);
    let faults = tokio::spawn(inject(Arc::clone(&proxy)));
    let [python, js] = CLIENTS.map(|(client, program, arguments)| {
        let settings = &settings;
        async move { test(client, program, arguments, settings).await }
    });
    tokio::join!(python, js, rust::test(&settings));
    faults.abort();
    settled_audit(folder.path(), "demo").await;
}

//! Processes of `stockade` that serve, and requests to them.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{LazyLock, mpsc},
    time::{Duration, Instant},
};

use client::Token;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
pub use testkit::program::{path as program, run, stderr, stdout, stockade};
use testkit::{eventually, eventually_some, timeout};

/// As long as `stockade token` makes it.
const TOKEN_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);

/// Serves the operators' pages where buyers are served.
pub const AT_LISTEN: &str = "--operators-at-listen=on";

/// A process of `stockade` that serves. Dropping it kills it.
pub struct Serving {
    child: Child,
    pub url: String,
    /// Lines that it printed after `ready`.
    pub printed: Vec<String>,
}

impl Serving {
    /// Starts `up` in the folder and waits until it is ready.
    pub fn up(dir: &Path) -> Self {
        Self::up_with(dir, &[])
    }

    pub fn up_with(dir: &Path, options: &[&str]) -> Self {
        Self::up_at(dir, "127.0.0.1:0", options)
    }

    /// The same at an address, for example that of an instance that was killed.
    pub fn up_at(dir: &Path, listen: &str, options: &[&str]) -> Self {
        let mut up = stockade(dir);
        up.args(["up", "--listen", listen]).args(options);
        let mut child = up.stdout(Stdio::piped()).spawn().expect("it starts");
        let lines = read_lines(&mut child);
        let first = lines
            .recv_timeout(timeout())
            .expect("`up` prints that it is ready");
        let url = first
            .strip_prefix("ready ")
            .unwrap_or_else(|| panic!("{first}"))
            .to_owned();
        let mut printed = Vec::new();
        loop {
            let line = lines.recv_timeout(timeout());
            let line = line.unwrap_or_else(|_| panic!("no line about Ctrl-C in {printed:?}"));
            let last = line.starts_with("Ctrl-C");
            printed.push(line);
            if last {
                break;
            }
        }
        Self {
            child,
            url,
            printed,
        }
    }

    /// Starts a role on a port that must be free, and waits until it serves.
    pub async fn order_service(dir: &Path, port: u16) -> Self {
        Self::serve(dir, port, &["--roles", "order"]).await
    }

    /// Starts roles, one of which serves HTTP, and waits until it serves.
    pub async fn serve(dir: &Path, port: u16, options: &[&str]) -> Self {
        Self::serve_by(stockade(dir), port, options).await
    }

    /// The same with the environment of `command`.
    pub async fn serve_by(mut command: Command, port: u16, options: &[&str]) -> Self {
        let url = format!("http://127.0.0.1:{port}");
        let listen = format!("127.0.0.1:{port}");
        let child = command
            .args(["serve", "--listen", &listen])
            .args(options)
            .spawn()
            .expect("it starts");
        let mut serving = Self {
            child,
            url,
            printed: Vec::new(),
        };
        let client = polling_client();
        eventually("a service that is ready", async || {
            let status = serving.child.try_wait().expect("it can be waited for");
            assert!(status.is_none(), "it ended: {status:?}");
            client
                .get(format!("{}/readyz", serving.url))
                .send()
                .await
                .is_ok_and(|response| response.status().is_success())
        })
        .await;
        serving
    }

    pub fn recorder(dir: &Path) -> Self {
        Self::in_the_background(dir, "recorder")
    }

    /// Starts a role that does not serve.
    pub fn in_the_background(dir: &Path, role: &str) -> Self {
        let child = stockade(dir)
            .args(["serve", "--roles", role])
            .spawn()
            .expect("it starts");
        Self {
            child,
            url: String::new(),
            printed: Vec::new(),
        }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().expect("a pid"))
    }

    /// Sends SIGKILL, so that the process cannot clean up.
    pub fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    /// Sends SIGTERM, as a supervisor does, and does not wait.
    pub fn terminate(&self) {
        kill(self.pid(), Signal::SIGTERM).expect("it can be signalled");
    }

    /// Sends SIGINT, as Ctrl-C does. Returns the exit status.
    pub fn interrupt(&mut self) -> Option<i32> {
        kill(self.pid(), Signal::SIGINT).expect("it can be signalled");
        let since = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                return status.code();
            }
            // clock: a fault is that it never ends.
            assert!(since.elapsed() < timeout(), "it never ended");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_lines(child: &mut Child) -> mpsc::Receiver<String> {
    let stdout = child.stdout.take().expect("standard output is piped");
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        BufReader::new(stdout)
            .lines()
            .map_while(Result::ok)
            .try_for_each(|line| sender.send(line))
    });
    receiver
}

/// What `stockade token` prints. It is made here, because some tests need a token for each of many
/// orders, and a start of the program takes longer than an order.
pub fn token(dir: &Path, subject: &[&str]) -> String {
    match subject {
        ["admin"] => setting(dir, "admin_token"),
        ["buyer", name] => {
            let token = Token::mint_buyer(setting(dir, "jwt_secret"), name, TOKEN_LIFETIME);
            token.as_str().to_owned()
        }
        _ => panic!("no token is for {subject:?}"),
    }
}

/// A setting of the folder: the user's, or else that of an earlier `up`.
fn setting(dir: &Path, key: &str) -> String {
    let value = ["stockade.toml", "run.toml"].iter().find_map(|name| {
        let text = fs::read_to_string(dir.join(name)).ok()?;
        let settings: toml::Table = text.parse().expect("a file of settings");
        Some(settings.get(key)?.as_str()?.to_owned())
    });
    value.unwrap_or_else(|| panic!("{} has no {key}", dir.display()))
}

/// A client that tests share, each of whose requests has a connection of its own: those that are kept
/// would belong to the runtime of one test. To make a client reads every authority of the system,
/// which takes longer than a request.
pub fn polling_client() -> Client {
    static CLIENT: LazyLock<Client> = LazyLock::new(|| {
        let builder = Client::builder().pool_max_idle_per_host(0);
        builder.build().expect("a client")
    });
    CLIENT.clone()
}

/// Waits until the service reports an audit that `is_awaited`. A start of the program for each poll
/// would take the processor from what must happen.
pub async fn audit_becomes(
    url: &str,
    admin: &str,
    item: &str,
    is_awaited: impl Fn(&Value) -> bool,
) {
    let client = polling_client();
    eventually(&format!("the awaited audit of {item}"), async || {
        let request = client.get(format!("{url}/v1/items/{item}/audit"));
        let request = request.bearer_auth(admin).timeout(timeout());
        let Ok(response) = request.send().await else {
            return false;
        };
        // A problem has none of an audit's fields.
        let report = response.json::<Value>().await;
        report.is_ok_and(|report| is_awaited(&report))
    })
    .await;
}

pub fn audit(dir: &Path, item: &str) -> Value {
    audit_with(dir, &[item, "--json"])
}

/// The audit that reads every order.
pub fn full_audit(dir: &Path, item: &str) -> Value {
    audit_with(dir, &[item, "--full", "--json"])
}

fn audit_with(dir: &Path, arguments: &[&str]) -> Value {
    let output = run(stockade(dir).arg("audit").args(arguments));
    serde_json::from_str(&stdout(&output)).unwrap_or_else(|_| panic!("{}", stderr(&output)))
}

/// The full audit once no units are in flight. It must find no drift, and neither must the one that
/// reads no orders.
pub async fn settled_audit(dir: &Path, item: &str) -> Value {
    eventually_some(
        &format!("an audit of {item} with no units in flight"),
        async || {
            let is_at_rest = |report: &Value| {
                assert_eq!(
                    (&report["drift"], &report["oversold"]),
                    (&json!(0), &json!(0)),
                    "{report:#}"
                );
                is_settled(report)
            };
            if !is_at_rest(&audit(dir, item)) {
                return None;
            }
            let report = full_audit(dir, item);
            is_at_rest(&report).then_some(report)
        },
    )
    .await
}

pub fn is_settled(report: &Value) -> bool {
    ["in_flight", "returning", "in_transit"]
        .iter()
        .all(|units| report[units] == 0)
}

pub fn order(client: &Client, url: &str, item: &str, token: &str, key: &str) -> RequestBuilder {
    let request = client
        .post(format!("{url}/v1/items/{item}/orders"))
        .bearer_auth(token)
        .header("Idempotency-Key", key);
    request.json(&json!({ "quantity": 1 })).timeout(timeout())
}

/// The response to a request that is repeated until its outcome is known. On a busy machine one
/// attempt takes longer than the service allows.
pub async fn known(request: impl Fn() -> RequestBuilder) -> Response {
    eventually_some("a known outcome", async || {
        let response = request().send().await.expect("the service responds");
        (response.status() != StatusCode::SERVICE_UNAVAILABLE).then_some(response)
    })
    .await
}

pub async fn create(url: &str, admin: &str, item: &Value) {
    let request = || {
        let request = polling_client().post(format!("{url}/v1/items"));
        request.bearer_auth(admin).json(item)
    };
    assert_eq!(known(request).await.status(), 201);
}

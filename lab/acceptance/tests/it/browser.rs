//! A real Chromium, which a test drives.

use std::{
    env, fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};
use testbed::free_port;
use testkit::{eventually, eventually_some};
use thirtyfour::{
    By, Capabilities, WebDriver, WebElement,
    error::{WebDriverError, WebDriverErrorInner, WebDriverResult},
};

/// chromedriver and a browser that it drives. Dropping it stops both.
pub struct Browser {
    driver: Child,
    url: String,
    pub client: WebDriver,
    _profile: tempfile::TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Is on the PATH, or else a test is skipped with a message, except in CI.
fn driver() -> Option<PathBuf> {
    let folders = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&folders)
        .map(|folder| folder.join("chromedriver"))
        .find(|program| program.is_file());
    if found.is_none() {
        let missing = "no chromedriver found: scripts/setup.sh test installs it";
        assert!(env::var_os("CI").is_none(), "{missing}");
        testbed::skipped(missing);
    }
    found
}

impl Browser {
    pub async fn start() -> Option<Self> {
        let (program, port) = (driver()?, free_port().await);
        let driver = Command::new(program)
            .arg(format!("--port={port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (url, profile) = (
            format!("http://127.0.0.1:{port}"),
            tempfile::tempdir().unwrap(),
        );
        let client = eventually_some("chromedriver starts a browser", async || {
            let capabilities = capabilities(&profile);
            WebDriver::new(&url, capabilities).await.ok()
        })
        .await;
        Some(Self {
            driver,
            url,
            client,
            _profile: profile,
        })
    }

    pub async fn text(&self, css: &str) -> String {
        // An event may replace the element between the two calls.
        let Ok(element) = self.client.find(By::Css(css)).await else {
            return String::new();
        };
        element.text().await.unwrap_or_default()
    }

    pub async fn shows(&self, css: &str, text: &str) {
        let what = format!("{css} shows {text:?}");
        eventually(&what, async || self.text(css).await.contains(text)).await;
    }

    /// Without scripts a page does not change: it is opened until it shows the text.
    pub async fn opens_with(&self, url: &str, css: &str, text: &str) {
        let what = format!("{css} of {url} shows {text:?}");
        eventually(&what, async || {
            self.open(url).await;
            self.text(css).await.contains(text)
        })
        .await;
    }

    pub async fn open(&self, url: &str) {
        self.client.goto(url).await.unwrap();
    }

    pub async fn click(&self, css: &str) {
        self.act_on(css, async |element| element.click().await)
            .await;
    }

    pub async fn press_enter_on(&self, css: &str) {
        self.act_on(css, async |element| element.send_keys("\u{e007}").await)
            .await;
    }

    /// An event may replace the element before the action reaches it: then the new one gets it.
    async fn act_on(&self, css: &str, act: impl AsyncFn(&WebElement) -> WebDriverResult<()>) {
        let what = format!("{css} is there for an action");
        eventually(&what, async || {
            let element = self.client.find(By::Css(css)).await.unwrap();
            match act(&element).await.map_err(WebDriverError::into_inner) {
                Err(WebDriverErrorInner::StaleElementReference(_)) => false,
                acted => {
                    acted.unwrap();
                    true
                }
            }
        })
        .await;
    }

    /// Presses Enter or types into the element that has the focus.
    pub async fn type_into_focus(&self, keys: &str) {
        let focused = self.client.active_element().await.unwrap();
        focused.send_keys(keys).await.unwrap();
    }

    pub async fn screenshot(&self, name: &str) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/pages");
        self.screenshot_in(folder, name).await;
    }

    pub async fn screenshot_in(&self, folder: &str, name: &str) {
        fs::create_dir_all(folder).unwrap();
        let picture = self.client.screenshot_as_png().await.unwrap();
        fs::write(format!("{folder}/{name}.png"), picture).unwrap();
    }

    /// A command of this session that WebDriver does not have.
    pub async fn call(&self, command: &str, body: &Value) -> Value {
        let session = self.client.session_id();
        let url = format!("{}/session/{session}/{command}", self.url);
        let request = reqwest::Client::new().post(url).json(body);
        request.send().await.unwrap().json().await.unwrap()
    }

    pub async fn emulate(&self, command: &str, parameters: Value) {
        let body = json!({ "cmd": format!("Emulation.{command}"), "params": parameters });
        let answer = self.call("goog/cdp/execute", &body).await;
        assert!(answer["value"]["error"].is_null(), "{answer}");
    }

    /// Errors that the browser has logged: of scripts, of the policy, of requests.
    pub async fn errors(&self) -> Vec<Value> {
        let log = self.call("se/log", &json!({ "type": "browser" })).await;
        log["value"]
            .as_array()
            .unwrap_or_else(|| panic!("{log}"))
            .clone()
    }
}

fn capabilities(profile: &tempfile::TempDir) -> Capabilities {
    let capabilities = json!({
        "goog:loggingPrefs": { "browser": "ALL" },
        "goog:chromeOptions": { "args": [
            "--headless=new",
            "--disable-gpu",
            "--no-first-run",
            "--disable-dev-shm-usage",
            // Root and many containers cannot use the sandbox, and only our own pages are opened.
            "--no-sandbox",
            "--hide-scrollbars",
            "--window-size=1000,1100",
            format!("--user-data-dir={}", profile.path().display()),
        ] },
    });
    serde_json::from_value(capabilities).unwrap()
}

//! The pages in a real Chromium: a buyer buys, an operator pauses and opens, and the numbers move.

use std::{
    env, fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};
use testbed::free_port;
use testkit::{eventually, eventually_some};
use thirtyfour::{By, Capabilities, WebDriver};

use super::visitor::{Visitor, field};
use crate::process::{Serving, settled_audit, token};

/// chromedriver and a browser that it drives. Dropping it stops both.
struct Browser {
    driver: Child,
    url: String,
    client: WebDriver,
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
        eprintln!("SKIPPED: {missing}");
    }
    found
}

impl Browser {
    async fn start() -> Option<Self> {
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

    async fn text(&self, css: &str) -> String {
        // An event may replace the element between the two calls.
        let Ok(element) = self.client.find(By::Css(css)).await else {
            return String::new();
        };
        element.text().await.unwrap_or_default()
    }

    async fn shows(&self, css: &str, text: &str) {
        let what = format!("{css} shows {text:?}");
        eventually(&what, async || self.text(css).await.contains(text)).await;
    }

    /// Without scripts a page does not change: it is opened until it shows the text.
    async fn opens_with(&self, url: &str, css: &str, text: &str) {
        let what = format!("{css} of {url} shows {text:?}");
        eventually(&what, async || {
            self.open(url).await;
            self.text(css).await.contains(text)
        })
        .await;
    }

    async fn open(&self, url: &str) {
        self.client.goto(url).await.unwrap();
    }

    async fn click(&self, css: &str) {
        let element = self.client.find(By::Css(css)).await.unwrap();
        element.click().await.unwrap();
    }

    async fn press_enter_on(&self, css: &str) {
        let element = self.client.find(By::Css(css)).await.unwrap();
        element.send_keys("\u{e007}").await.unwrap();
    }

    /// Presses Enter or types into the element that has the focus.
    async fn type_into_focus(&self, keys: &str) {
        let focused = self.client.active_element().await.unwrap();
        focused.send_keys(keys).await.unwrap();
    }

    async fn screenshot(&self, name: &str) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/pages");
        fs::create_dir_all(folder).unwrap();
        let picture = self.client.screenshot_as_png().await.unwrap();
        fs::write(format!("{folder}/{name}.png"), picture).unwrap();
    }

    /// A command of this session that WebDriver does not have.
    async fn call(&self, command: &str, body: &Value) -> Value {
        let session = self.client.session_id();
        let url = format!("{}/session/{session}/{command}", self.url);
        let request = reqwest::Client::new().post(url).json(body);
        request.send().await.unwrap().json().await.unwrap()
    }

    async fn emulate(&self, command: &str, parameters: Value) {
        let body = json!({ "cmd": format!("Emulation.{command}"), "params": parameters });
        let answer = self.call("goog/cdp/execute", &body).await;
        assert!(answer["value"]["error"].is_null(), "{answer}");
    }

    /// Errors that the browser has logged: of scripts, of the policy, of requests.
    async fn errors(&self) -> Vec<Value> {
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

/// The pages show everything, and the buyer's form works.
async fn without_scripts(browser: &Browser, url: &str) {
    let off = json!({ "value": true });
    browser.emulate("setScriptExecutionDisabled", off).await;
    browser.open(&format!("{url}/sale/demo")).await;
    browser.click("#buy").await;
    browser.shows("#outcome", "You have one.").await;
    assert_eq!(browser.text("#live-state").await, "");
    let sale = format!("{url}/sale/demo");
    browser.opens_with(&sale, "#left", "9,995").await;
    let item = format!("{url}/console/items/demo");
    browser.opens_with(&item, "#summary", "confirmed 5").await;
}

/// Buys one unit as another visitor.
async fn another_buys(url: &str) {
    let mut visitor = Visitor::of(url);
    let page = visitor.get("/sale/demo").await.text;
    let form = vec![("key", field(&page, "key"))];
    let bought = visitor.post("/sale/demo/orders", form).await;
    assert_eq!(bought.location, "/sale/demo?outcome=paid");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_buyer_buys_an_operator_pauses_and_opens_and_the_numbers_move() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let up = Serving::up(folder.path());

    browser.open(&up.url).await;
    browser.shows("#left", "10,000").await;
    browser.shows("#live-state", "Live").await;
    browser.click("#buy").await;
    browser.shows("#outcome", "You have one.").await;
    browser.shows("#left", "9,999").await;
    browser.screenshot("sale").await;
    another_buys(&up.url).await;
    browser.shows("#left", "9,998").await;

    browser.open(&format!("{}/console", up.url)).await;
    // The field has the focus, and Enter sends the form.
    let admin = token(folder.path(), &["admin"]);
    browser.type_into_focus(&format!("{admin}\u{e007}")).await;
    browser.shows("#item-demo", "sold 2").await;
    another_buys(&up.url).await;
    browser.shows("#item-demo", "sold 3").await;
    browser.screenshot("console").await;

    browser.click("article h2 a").await;
    browser.shows("#summary", "confirmed 3").await;
    for (button, state) in [("#pause", "paused"), ("#open", "open")] {
        browser.click(button).await;
        browser
            .shows("h1", if state == "open" { "Open" } else { "Pause" })
            .await;
        if state == "paused" {
            browser.screenshot("confirmation").await;
        }
        browser.press_enter_on("#confirm").await;
        browser
            .shows("#done", &format!("The item is {state}."))
            .await;
        browser.shows("#summary .state", state).await;
    }
    another_buys(&up.url).await;
    browser.shows("#summary", "confirmed 4").await;
    browser.shows("#journal", "admin").await;
    browser.screenshot("item").await;

    // A phone.
    browser
        .client
        .set_window_rect(0, 0, 390, 1600)
        .await
        .unwrap();
    let wide = "return document.documentElement.scrollWidth > document.documentElement.clientWidth";
    for path in ["/sale/demo", "/console", "/console/items/demo"] {
        browser.open(&format!("{}{path}", up.url)).await;
        let overflows = browser.client.execute(wide, Vec::new()).await.unwrap();
        assert_eq!(
            *overflows.json(),
            json!(false),
            "{path} is wider than a phone"
        );
    }
    browser.screenshot("phone").await;

    let dark = json!({ "features": [{ "name": "prefers-color-scheme", "value": "dark" }] });
    browser.emulate("setEmulatedMedia", dark).await;
    browser.open(&format!("{}/sale/demo", up.url)).await;
    let background = "return getComputedStyle(document.body).backgroundColor";
    let background = browser
        .client
        .execute(background, Vec::new())
        .await
        .unwrap();
    assert_eq!(*background.json(), json!("rgb(18, 21, 27)"));
    browser.screenshot("phone-dark").await;

    assert_eq!(browser.errors().await, Vec::<Value>::new());
    without_scripts(&browser, &up.url).await;
    browser.client.clone().quit().await.unwrap();
    settled_audit(folder.path(), "demo").await;
}

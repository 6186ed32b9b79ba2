//! The pages in a real Chromium: a buyer buys, an operator pauses and opens, and the numbers move.

use std::time::Duration;

use reqwest::Client;
use serde_json::{Value, json};
use testkit::eventually;
use tokio::time::sleep;

use super::visitor::{Visitor, field};
use crate::{
    browser::Browser,
    payments::pay,
    process::{Serving, create, settled_audit, token},
    test_env::run_redis,
};

/// The field has the focus, and Enter sends the form. A browser on a busy machine gives the focus
/// late.
async fn log_in(browser: &Browser, admin: &str) {
    let focused = "return document.activeElement.tagName";
    eventually("the field has the focus", async || {
        let focused = browser.client.execute(focused, Vec::new()).await;
        focused.is_ok_and(|focused| *focused.json() == json!("INPUT"))
    })
    .await;
    browser.type_into_focus(&format!("{admin}\u{e007}")).await;
    browser.shows("#admin", "admin").await;
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
    let admin = token(folder.path(), &["admin"]);
    log_in(&browser, &admin).await;
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
    for path in [
        "/sale/demo",
        "/console",
        "/console/items/demo",
        "/console/system",
    ] {
        browser.open(&format!("{}{path}", up.url)).await;
        let overflows = browser.client.execute(wide, Vec::new()).await.unwrap();
        assert_eq!(
            *overflows.json(),
            json!(false),
            "{path} is wider than a phone"
        );
    }
    browser.shows("#processes", "order, recorder").await;
    browser.screenshot("phone-system").await;
    browser
        .open(&format!("{}/console/items/demo", up.url))
        .await;
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
    browser
        .open(&format!("{}/console/items/demo", up.url))
        .await;
    browser.shows("#live-state", "Live").await;
    browser.screenshot("phone-item-dark").await;

    assert_eq!(browser.errors().await, Vec::<Value>::new());
    without_scripts(&browser, &up.url).await;
    browser.client.clone().quit().await.unwrap();
    settled_audit(folder.path(), "demo").await;
}

/// The policy of the API's pages lets everything run that they consist of, also the form that tries
/// a call.
#[tokio::test(flavor = "multi_thread")]
async fn the_description_of_the_api_opens_a_call_and_breaks_no_policy() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let up = Serving::up(folder.path());
    browser.open(&format!("{}/docs/", up.url)).await;
    browser
        .shows("#operations-operators-getHealth", "/healthz")
        .await;
    browser
        .click("#operations-operators-getHealth .opblock-summary-control")
        .await;
    browser
        .shows("#operations-operators-getHealth .try-out", "Try it out")
        .await;
    browser
        .click("#operations-operators-getHealth .try-out__btn")
        .await;
    browser
        .shows("#operations-operators-getHealth .execute", "Execute")
        .await;
    browser
        .click("#operations-operators-getHealth .execute")
        .await;
    browser
        .shows(
            "#operations-operators-getHealth .live-responses-table",
            "ok",
        )
        .await;
    assert_eq!(browser.errors().await, Vec::<Value>::new());
    browser.open(&format!("{}/docs/problems", up.url)).await;
    browser.shows("h1", "Problems").await;
    assert_eq!(browser.errors().await, Vec::<Value>::new());
    browser.client.clone().quit().await.unwrap();
}

/// Orders of `count` buyers, one unit each.
async fn order_batch(url: &str, admin: &str, batch: u32, count: u32) {
    let orders: Vec<_> = (0..count)
        .map(|n| json!({ "buyer": format!("rush-{batch}-{n}"), "key": "k", "quantity": 1 }))
        .collect();
    let path = format!("{url}/v1/items/rush/orders:batch");
    let request = Client::new().post(path).bearer_auth(admin);
    let answer = request.json(&json!({ "orders": orders })).send();
    assert_eq!(answer.await.unwrap().status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_numbers_move_in_a_rush_and_a_stopped_segment_is_shown_and_repaired() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    // Without a reconciler first, so that the segment stays as it is.
    let up = Serving::up_with(folder.path(), &["--roles", "order,recorder"]);
    let admin = token(folder.path(), &["admin"]);
    let item = json!({ "id": "rush", "title": "A rush", "stock": 600, "segments": 2, "closes_at": "2099-01-01T00:00:00Z" });
    create(&up.url, &admin, &item).await;
    browser
        .open(&format!("{}/console/items/rush", up.url))
        .await;
    log_in(&browser, &admin).await;
    browser
        .open(&format!("{}/console/items/rush", up.url))
        .await;
    browser.shows("#live-state", "Live").await;
    browser.shows("#funnel-arrived", "0").await;
    for batch in 0..12 {
        order_batch(&up.url, &admin, batch, 100).await;
        if batch == 2 {
            browser.shows("#funnel-took", "300").await;
            browser.shows("#summary", "held 300").await;
        }
        sleep(Duration::from_millis(300)).await;
    }
    browser.shows("#funnel-arrived", "1,200").await;
    browser.shows("#funnel-took", "600").await;
    browser.shows("#summary", "held 600").await;
    let refused = ["#funnel-shed", "#funnel-sold-out"];
    let mut sum = 0;
    for css in refused {
        let text = browser.text(css).await.replace(',', "");
        sum += text.parse::<u64>().unwrap();
    }
    assert_eq!(sum, 600, "every other request was refused");
    browser.shows("#summary .refused", "Requests refused").await;

    let settings = std::fs::read_to_string(folder.path().join("run.toml")).unwrap();
    let settings: toml::Table = settings.parse().unwrap();
    let redis = settings["redis_url"].as_str().unwrap();
    run_redis(redis, &["DEL", "outbox:{rush:1}"]).await;
    browser.shows("#segments", "Stopped or drifted").await;
    browser.shows("#repair", "halt the segment").await;
    browser.screenshot("stopped").await;
    let mut reconciler = Serving::in_the_background(folder.path(), "reconciler");
    // The holds stay, because the ledger has them.
    let repaired = async || {
        let segments = browser.text("#segments").await;
        !segments.contains("Stopped") && browser.text("#repair").await.is_empty()
    };
    eventually("the repair", repaired).await;
    browser.shows("#journal", "reconciler").await;
    browser.open(&format!("{}/console/system", up.url)).await;
    browser.shows("#processes", "reconciler").await;
    browser.shows("#locks", "given up after").await;
    browser.screenshot("system").await;
    assert_eq!(browser.errors().await, Vec::<Value>::new());
    browser.client.clone().quit().await.unwrap();
    reconciler.kill();
    settled_audit(folder.path(), "rush").await;
}

/// Seconds of the crowd in the pictures.
const CROWD_SECONDS: u32 = 40;
const BATCHES_PER_SECOND: u32 = 4;

/// Orders in batches whose size swells and falls. A fourth of the orders are paid.
async fn crowd(url: &str, admin: &str, payment_secret: &str) {
    let client = Client::new();
    let price = 149_900;
    for batch in 0..CROWD_SECONDS * BATCHES_PER_SECOND {
        let swell = 40.0 + 30.0 * (f64::from(batch) / 12.0).sin();
        let orders: Vec<_> = (0..swell as u32)
            .map(|n| json!({ "buyer": format!("buyer-{batch}-{n}"), "key": "k", "quantity": 1 }))
            .collect();
        let path = format!("{url}/v1/items/demo/orders:batch");
        let request = client.post(path).bearer_auth(admin);
        let answer = request.json(&json!({ "orders": orders })).send();
        let answer: Value = answer.await.unwrap().json().await.unwrap();
        for result in answer["results"].as_array().unwrap().iter().step_by(4) {
            let order = result["id"].as_str().unwrap();
            let paid = pay(url, order, payment_secret, &format!("pay-{order}"), price).await;
            assert_eq!(paid.status(), 200);
        }
        sleep(Duration::from_secs(1) / BATCHES_PER_SECOND).await;
    }
}

/// `cargo test -p acceptance --test it -- --ignored the_pictures_of_the_docs`
#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes docs/pictures"]
async fn the_pictures_of_the_docs() {
    let browser = Browser::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let up = Serving::up(folder.path());
    let admin = token(folder.path(), &["admin"]);
    let run_file = std::fs::read_to_string(folder.path().join("run.toml")).unwrap();
    let run_file: toml::Table = run_file.parse().unwrap();
    let payment_secret = run_file["payment_secret"].as_str().unwrap();
    let pictures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pictures");
    let window = |height| browser.client.set_window_rect(0, 0, 1000, height);

    browser.open(&format!("{}/console", up.url)).await;
    log_in(&browser, &admin).await;
    browser.shows("#item-demo", "sold 0").await;
    window(1000).await.unwrap();
    browser
        .open(&format!("{}/console/items/demo", up.url))
        .await;
    crowd(&up.url, &admin, payment_secret).await;
    browser.screenshot_in(pictures, "console").await;

    window(1250).await.unwrap();
    browser.open(&format!("{}/console/system", up.url)).await;
    browser.shows("#live-state", "Live").await;
    browser.screenshot_in(pictures, "system").await;

    window(820).await.unwrap();
    browser.open(&format!("{}/sale/demo", up.url)).await;
    browser.click("#buy").await;
    browser.shows("#outcome", "You have one.").await;
    browser.screenshot_in(pictures, "sale-page").await;
    browser.client.clone().quit().await.unwrap();
}

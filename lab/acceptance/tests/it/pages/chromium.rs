//! The pages in a real Chromium: a buyer buys, an operator pauses and opens, and the numbers move.

use std::time::Duration;

use reqwest::Client;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::visitor::{Visitor, field};
use crate::{
    browser::Browser,
    payments::pay,
    process::{Serving, settled_audit, token},
};

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
    browser.type_into_focus(&format!("{admin}\u{e007}")).await;
    browser.shows("#item-demo", "sold 0").await;
    window(1000).await.unwrap();
    browser
        .open(&format!("{}/console/items/demo", up.url))
        .await;
    crowd(&up.url, &admin, payment_secret).await;
    browser.screenshot_in(pictures, "console").await;

    window(820).await.unwrap();
    browser.open(&format!("{}/sale/demo", up.url)).await;
    browser.click("#buy").await;
    browser.shows("#outcome", "You have one.").await;
    browser.screenshot_in(pictures, "sale-page").await;
    browser.client.clone().quit().await.unwrap();
}

//! The example shop, in a real Chromium: it sells, is paid by its Stripe, and survives the death of
//! Stockade in the middle of a purchase.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::Value;
use testbed::free_port;
use testkit::eventually;

use crate::{
    browser::Browser,
    clients::has,
    process::{Serving, settled_audit},
};

const WEBHOOKS: &str = "SELECT count(*) FROM handled_webhooks";
/// What the shop's warehouse would ship.
const ORDERS: &str = "SELECT count(*) FROM orders";

/// The process of the shop. Dropping it kills it.
struct Shop {
    child: Child,
    url: String,
}

impl Drop for Shop {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Shop {
    /// Starts the shop beside the `up` of the folder, and waits until it is ready.
    async fn start(folder: &Path) -> Self {
        let run = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/shop/run");
        let mut child = Command::new(run)
            .arg("--dir")
            .arg(folder)
            .args(["--listen", &format!("127.0.0.1:{}", free_port().await)])
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("ready ");
        let url = url.unwrap_or_else(|| panic!("{line}")).to_owned();
        Self { child, url }
    }
}

/// Puts things into the cart and orders them.
async fn order(browser: &Browser, shop: &Shop, items: [&str; 2]) {
    for item in items {
        browser.open(&shop.url).await;
        browser.click(&format!("#add-{item}")).await;
        browser.shows("h1", "Cart").await;
    }
    browser.click("#order").await;
}

/// Orders two things, and goes to the page of the shop's Stripe.
async fn go_to_payment(browser: &Browser, shop: &Shop) {
    order(browser, shop, ["shop-vase", "shop-bowl"]).await;
    browser.shows("#state", "Reserved for you").await;
    browser.click("#pay").await;
    browser.shows("h1", "Payment").await;
}

/// An audit whose confirmed units are these. The ledger has them before the shop shows "paid".
async fn sold(folder: &Path, item: &str, units: u64) {
    let report: Value = settled_audit(folder, item).await;
    assert_eq!(report["confirmed"], units, "{report:#}");
    assert_eq!(report["held"], 0, "{report:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purchase_survives_the_death_of_stockade_and_is_one_order() {
    if !has("python3") {
        return;
    }
    let Some(browser) = Browser::start().await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut up = Serving::up(folder);
    let shop = Shop::start(folder).await;

    browser.open(&format!("{}/login", shop.url)).await;
    browser.type_into_focus("ann\u{e007}").await;
    browser.shows("header", "ann").await;
    go_to_payment(&browser, &shop).await;
    browser.click("#confirm").await;
    browser.shows("#state", "Paid").await;
    browser.shows("#number", "1").await;
    browser.screenshot("shop-paid").await;
    // The cart was extended and confirmed. `Checkouts.ask` is for the second purchase, whose
    // webhooks wait for a lease.
    eventually("the webhooks arrive", async || {
        count(folder, WEBHOOKS).await >= 2
    })
    .await;

    go_to_payment(&browser, &shop).await;
    up.kill();
    browser.click("#confirm").await;
    browser.shows("#state", "is being confirmed").await;
    let listen = up.url.strip_prefix("http://").unwrap().to_owned();
    let _up = Serving::up_at(folder, &listen, &[]);
    browser.shows("#state", "Paid").await;
    browser.shows("#number", "2").await;

    // A third purchase exceeds the limit. Nothing of it stays reserved.
    order(&browser, &shop, ["shop-lamp", "shop-vase"]).await;
    browser.shows("#state", "the limit for one buyer").await;
    browser.screenshot("shop-refused").await;
    // The lamp can be bought again.
    browser
        .opens_with(&shop.url, "#left-shop-lamp", "1 left")
        .await;

    for (item, units) in [("shop-vase", 2), ("shop-bowl", 2), ("shop-lamp", 0)] {
        sold(folder, item, units).await;
    }
    let orders = count(folder, ORDERS).await;
    assert_eq!(orders, 2, "one order for each paid purchase");
    browser.client.clone().quit().await.unwrap();
}

/// Asks the shop's own database.
async fn count(folder: &Path, sql: &'static str) -> i64 {
    let url = format!("sqlite://{}", folder.join("shop.db").display());
    let pool = sqlx::SqlitePool::connect(&url).await.unwrap();
    sqlx::query_scalar(sql).fetch_one(&pool).await.unwrap()
}

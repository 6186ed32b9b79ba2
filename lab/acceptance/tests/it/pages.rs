//! The pages: the console and the sale page, as a browser gets them.

mod chromium;
mod headers;
mod visitor;

use base64::{Engine, prelude::BASE64_STANDARD};
use reqwest::{Client, header};
use ring::digest::{SHA256, digest};
use serde_json::Value;
use testbed::free_port;
use testkit::{eventually, eventually_some};

use crate::{
    process::{AT_LISTEN, Serving, create, settled_audit, token},
    test_env::run_redis,
};
use visitor::{Visitor, field};

/// The journal of the demo item.
async fn journal(up: &Serving, admin: &str) -> Vec<Value> {
    let request = Client::new().get(format!("{}/v1/items/demo/journal", up.url));
    let response = request.bearer_auth(admin).send().await.unwrap();
    let page: Value = response.json().await.unwrap();
    page["data"].as_array().unwrap().clone()
}

/// The demo item, as admins see it: at this moment.
async fn state(up: &Serving, admin: &str) -> Value {
    let request = Client::new().get(format!("{}/v1/items/demo", up.url));
    request
        .bearer_auth(admin)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap()
}

/// Opens the page that asks, and sends its form.
async fn act(operator: &mut Visitor, action: &str) -> visitor::Answer {
    let (path, query) = action.split_once('?').unwrap_or((action, ""));
    let asked = operator.get(&format!("/console/items/demo/{action}")).await;
    assert_eq!(asked.status, 200, "{}", asked.text);
    let mut form = vec![
        ("secret", field(&asked.text, "secret")),
        ("version", field(&asked.text, "version")),
    ];
    if !query.is_empty() {
        form.push(("units", field(&asked.text, "units")));
        form.push(("key", field(&asked.text, "key")));
    }
    operator
        .post(&format!("/console/items/demo/{path}"), form)
        .await
}

/// A live page has no end of its own, and anyone can open many of them.
#[tokio::test(flavor = "multi_thread")]
async fn viewers_of_live_pages_make_room_for_buyers() {
    const BOUND: usize = 16;
    let folder = tempfile::tempdir().unwrap();
    let bound = BOUND.to_string();
    let up = Serving::up_with(folder.path(), &["--connections-max", &bound]);
    let mut viewers = Vec::new();
    for _ in 0..2 * BOUND {
        // Each with a connection of its own, which stays open.
        let viewer = Client::new().get(format!("{}/sale/demo/events", up.url));
        let viewer = viewer.send().await.unwrap();
        assert_eq!(viewer.status(), 200);
        viewers.push(viewer);
    }
    for _ in 0..5 {
        let healthy = Client::new().get(format!("{}/healthz", up.url));
        assert_eq!(healthy.send().await.unwrap().status(), 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_changes_an_item_and_the_journal_names_the_admin() {
    let folder = tempfile::tempdir().unwrap();
    let up = Serving::up(folder.path());
    let admin = token(folder.path(), &["admin"]);
    let mut operator = Visitor::of(&up.url);
    let refused = operator.log_in("not a token of an admin").await;
    assert_eq!(refused.status, 401);
    assert_eq!(operator.get("/console").await.location, "/console/login");
    let accepted = operator.log_in(&admin).await;
    assert_eq!((accepted.status, &*accepted.location), (303, "/console"));
    let cookie = accepted.headers[header::SET_COOKIE].to_str().unwrap();
    assert!(
        cookie.contains("HttpOnly; SameSite=Strict") && cookie.contains("Max-Age=28800"),
        "{cookie}"
    );
    let items = operator.get("/console").await;
    assert!(items.text.contains("ten thousand vases"), "{}", items.text);

    let paused = act(&mut operator, "pause").await;
    assert_eq!(
        (paused.status, &*paused.location),
        (303, "/console/items/demo?done=pause"),
        "{}",
        paused.text
    );
    assert_eq!(state(&up, &admin).await["state"], "paused");
    let page = operator.get(&paused.location).await.text;
    assert!(page.contains("The item is paused."), "{page}");
    assert_eq!(act(&mut operator, "open").await.status, 303);
    let added = act(&mut operator, "add?units=50").await;
    assert_eq!(added.status, 303, "{}", added.text);
    assert_eq!(state(&up, &admin).await["stock"], 10_050);
    let withdrawn = act(&mut operator, "withdraw?units=60").await;
    assert_eq!(withdrawn.status, 303, "{}", withdrawn.text);
    let page = operator.get(&withdrawn.location).await.text;
    assert!(page.contains("The units have left the sale."), "{page}");
    assert_eq!(state(&up, &admin).await["stock"], 9_990);
    let no_end = operator.get("/console/items/demo/extend?minutes=5").await;
    assert_eq!(no_end.status, 400, "{}", no_end.text);
    assert!(no_end.text.contains("no end"), "{}", no_end.text);
    let too_many = operator
        .get("/console/items/demo/withdraw?units=9991")
        .await;
    assert_eq!(too_many.status, 400);
    assert!(too_many.text.contains("from 1 to 9,990"));
    let early = act(&mut operator, "archive").await;
    assert_eq!(early.status, 409, "{}", early.text);
    assert!(early.text.contains("cannot be archived"), "{}", early.text);
    assert_eq!(act(&mut operator, "close").await.status, 303);

    let entries = journal(&up, &admin).await;
    let of_admin: Vec<_> = entries
        .iter()
        .filter(|entry| entry["actor"] == "admin")
        .map(|entry| entry["action"].as_str().unwrap())
        .collect();
    assert_eq!(of_admin, ["state", "withdraw", "top_up", "state", "state"]);
    let page = operator.get("/console/items/demo").await.text;
    assert!(page.contains("top_up"), "{page}");
    settled_audit(folder.path(), "demo").await;

    let archived = act(&mut operator, "archive").await;
    assert_eq!(archived.status, 303, "{}", archived.text);
    eventually("the item is archived", async || {
        state(&up, &admin).await["state"] == "archived"
    })
    .await;
    let page = operator.get(&archived.location).await.text;
    assert!(page.contains("archive"), "{page}");
    let open = act(&mut operator, "open").await;
    assert_eq!(open.status, 409, "{}", open.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_of_another_site_or_session_or_version_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let up = Serving::up(folder.path());
    let admin = token(folder.path(), &["admin"]);
    let (mut operator, mut other) = (Visitor::of(&up.url), Visitor::of(&up.url));
    operator.log_in(&admin).await;
    other.log_in(&admin).await;
    let asked = operator.get("/console/items/demo/pause").await.text;
    let secret = field(&asked, "secret");
    let foreign = field(&other.get("/console").await.text, "secret");
    let version = field(&asked, "version");
    let form = |secret: &str, version: &str| {
        vec![
            ("secret", secret.to_owned()),
            ("version", version.to_owned()),
        ]
    };
    let path = "/console/items/demo/pause";

    for (secret, origin) in [
        (&*foreign, Some(up.url.as_str())),
        ("", Some(&up.url)),
        (&secret, Some("http://evil.example")),
        (&secret, Some("null")),
        (&secret, None),
    ] {
        let answer = operator.post_from(origin, path, form(secret, &version));
        assert_eq!(answer.await.status, 403, "{secret:?} {origin:?}");
    }
    let logout = operator.post("/console/logout", form(&foreign, &version));
    assert_eq!(logout.await.status, 403);
    let login = vec![("token", admin.clone())];
    let login = Visitor::of(&up.url)
        .post_from(Some("http://evil.example"), "/console/login", login)
        .await;
    assert_eq!(login.status, 403, "another site cannot log an admin in");
    assert_eq!(state(&up, &admin).await["state"], "open");

    let late = operator.post(path, form(&secret, "999")).await;
    assert_eq!(late.status, 412, "{}", late.text);
    assert_eq!(state(&up, &admin).await["state"], "open");
    assert_eq!(
        operator.post(path, form(&secret, &version)).await.status,
        303
    );
    assert_eq!(state(&up, &admin).await["state"], "paused");

    let out = operator.post("/console/logout", form(&secret, &version));
    assert_eq!(out.await.location, "/console/login");
    assert_eq!(operator.get("/console").await.location, "/console/login");
    assert_eq!(
        other.get("/console").await.status,
        200,
        "the other session goes on"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scopes_of_an_admin_decide_what_a_button_does() {
    let folder = tempfile::tempdir().unwrap();
    let admins = [
        ("warehouse", "\"read\", \"stock:write\""),
        ("till", "\"orders:place\""),
    ]
    .map(|(name, scopes)| {
        let hash = digest(&SHA256, name.as_bytes());
        let hash: String = hash
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("[[admins]]\nname = \"{name}\"\ntoken_sha256 = \"{hash}\"\nscopes = [{scopes}]\n")
    });
    let file = folder.path().join("admins.toml");
    std::fs::write(&file, admins.concat()).unwrap();
    let up = Serving::up_with(folder.path(), &["--admins-file", file.to_str().unwrap()]);

    let admin = token(folder.path(), &["admin"]);
    let mut warehouse = Visitor::of(&up.url);
    warehouse.log_in("warehouse").await;
    let page = warehouse.get("/console/items/demo").await.text;
    assert!(
        page.contains("Without the scope <code>items:write</code>"),
        "{page}"
    );
    assert_eq!(warehouse.get("/console/items/demo/pause").await.status, 403);
    let secret = field(&page, "secret");
    let form = vec![("secret", secret), ("version", "1".to_owned())];
    let refused = warehouse.post("/console/items/demo/pause", form).await;
    assert_eq!(refused.status, 403, "{}", refused.text);
    assert_eq!(state(&up, &admin).await["state"], "open");
    assert_eq!(act(&mut warehouse, "add?units=5").await.status, 303);
    assert_eq!(state(&up, &admin).await["stock"], 10_005);
    assert_eq!(journal(&up, &admin).await[0]["actor"], "warehouse");

    let mut till = Visitor::of(&up.url);
    assert_eq!(till.log_in("till").await.status, 303);
    for path in ["/console", "/console/items/demo", "/console/events"] {
        assert_eq!(till.get(path).await.status, 403, "{path} needs `read`");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_visitor_of_the_sale_page_buys_until_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let up = Serving::up(folder.path());
    let mut visitor = Visitor::of(&up.url);
    let home = visitor.get("/").await;
    assert_eq!((home.status, &*home.location), (303, "/sale/demo"));
    let page = visitor.get("/sale/demo").await;
    let cookie = page.headers[header::SET_COOKIE].to_str().unwrap();
    assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
    assert!(page.text.contains("CNY 1,499.00"), "{}", page.text);
    let key = |page: &str| vec![("key", field(page, "key"))];
    let path = "/sale/demo/orders";

    let evil = visitor.post_from(Some("http://evil.example"), path, key(&page.text));
    assert_eq!(evil.await.status, 403);
    let first = key(&page.text);
    for _ in 0..2 {
        let bought = visitor.post(path, first.clone()).await;
        assert_eq!(
            bought.location, "/sale/demo?outcome=paid",
            "also when it is sent twice"
        );
    }
    let page = visitor.get("/sale/demo?outcome=paid").await.text;
    assert!(
        page.contains("You have one.") && page.contains("confirmed"),
        "{page}"
    );
    assert_eq!(page.matches("</code> confirmed").count(), 1, "{page}");
    assert_eq!(
        visitor.post(path, key(&page)).await.location,
        "/sale/demo?outcome=paid"
    );
    let page = visitor.get("/sale/demo").await.text;
    let third = visitor.post(path, key(&page)).await;
    assert_eq!(third.location, "/sale/demo?outcome=buyer_limit_reached");

    assert_eq!(visitor.get("/sale/no-such-item").await.status, 404);
    let report = settled_audit(folder.path(), "demo").await;
    assert_eq!(report["confirmed"], 2, "two orders are paid: {report:#}");
}

/// A page with a title that is HTML shows the title, and the policy lets nothing of it run.
#[tokio::test(flavor = "multi_thread")]
async fn pages_escape_what_they_show_and_allow_only_their_own_script() {
    let folder = tempfile::tempdir().unwrap();
    let up = Serving::up(folder.path());
    let admin = token(folder.path(), &["admin"]);
    let item = serde_json::json!({ "id": "x", "stock": 1, "title": "<script>alert(1)</script>" });
    create(&up.url, &admin, &item).await;
    let mut operator = Visitor::of(&up.url);
    operator.log_in(&admin).await;
    for path in ["/console", "/console/items/x", "/sale/x", "/console/login"] {
        let page = operator.get(path).await;
        assert!(!page.text.contains("<script>alert"), "{}", page.text);
        assert!(!page.text.contains(" style=") && !page.text.contains(" onclick="));
        let policy = page.headers[header::CONTENT_SECURITY_POLICY]
            .to_str()
            .unwrap();
        assert!(
            policy.starts_with("default-src 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
        let scripts = page.text.split("<script>").skip(1);
        for script in scripts.map(|rest| rest.split("</script>").next().unwrap()) {
            let hash = BASE64_STANDARD.encode(digest(&SHA256, script.as_bytes()));
            assert!(
                policy.contains(&hash),
                "{policy} does not allow the script of {path}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_console_shows_drift_and_why_a_segment_needs_a_repair() {
    let folder = tempfile::tempdir().unwrap();
    // Without the reconciler, so that nothing repairs the segments.
    let up = Serving::up_with(folder.path(), &["--roles", "order,recorder"]);
    let mut operator = Visitor::of(&up.url);
    operator.log_in(&token(folder.path(), &["admin"])).await;
    let page = operator.get("/console/items/demo").await.text;
    assert!(page.contains("Drift 0") && !page.contains("Stopped or drifted"));
    let settings = std::fs::read_to_string(folder.path().join("run.toml")).unwrap();
    let settings: toml::Table = settings.parse().unwrap();
    let redis = settings["redis_url"].as_str().unwrap();
    run_redis(redis, &["HINCRBY", "stock:{demo:3}", "available", "7"]).await;
    run_redis(redis, &["DEL", "outbox:{demo:5}"]).await;
    for (path, shown) in [
        ("/console/items/demo", "Segment 3: Redis has 1257 units"),
        ("/console/items/demo", "Segment 5: "),
        ("/console/items/demo", "What a repair would do"),
        ("/console/items/demo", "set it to 1250 units, reopen it"),
        ("/console", "class=\"bad\">Drift "),
    ] {
        eventually(shown, async || {
            operator.get(path).await.text.contains(shown)
        })
        .await;
    }
}

/// The end of a sale moves by a form that names the version, and the page counts down to it.
#[tokio::test(flavor = "multi_thread")]
async fn an_admin_extends_a_sale() {
    let folder = tempfile::tempdir().unwrap();
    let up = Serving::up(folder.path());
    let admin = token(folder.path(), &["admin"]);
    let item = serde_json::json!({ "id": "jar", "stock": 5, "opens_at": "2020-01-01T00:00:00Z", "closes_at": "2099-01-01T00:00:00Z",
                                   "waves": [{ "at": "2098-01-01T00:00:00Z", "units": 2500 }] });
    create(&up.url, &admin, &item).await;
    let mut operator = Visitor::of(&up.url);
    operator.log_in(&admin).await;
    let page = operator.get("/console/items/jar").await.text;
    assert!(page.contains("Closes in ") && page.contains("; 2,500 more units in "));
    for minutes in ["0", "129601", "x"] {
        let path = format!("/console/items/jar/extend?minutes={minutes}");
        assert_eq!(operator.get(&path).await.status, 400, "{minutes}");
    }
    let asked = operator.get("/console/items/jar/extend?minutes=90").await;
    assert!(asked.text.contains("90 minutes"), "{}", asked.text);
    let form = |version: &str| {
        vec![
            ("secret", field(&asked.text, "secret")),
            ("version", version.to_owned()),
            ("minutes", field(&asked.text, "minutes")),
        ]
    };
    let path = "/console/items/jar/extend";
    let late = operator.post(path, form("7")).await;
    assert_eq!(late.status, 412, "{}", late.text);
    let done = operator
        .post(path, form(&field(&asked.text, "version")))
        .await;
    assert_eq!(done.status, 303, "{}", done.text);
    let page = operator.get(&done.location).await.text;
    assert!(page.contains("The sale ends later.") && page.contains("2099-01-01 01:30:00 UTC"));
}

/// Refusals in process are counted by each process, and the page adds them up, also those of a
/// process that has ended.
#[tokio::test(flavor = "multi_thread")]
async fn the_console_counts_the_requests_of_all_order_services() {
    let env = crate::test_env::TestEnv::new().await;
    let flags = ["--roles", "order,recorder", AT_LISTEN];
    let one = env.serve(&flags).await;
    let flags = ["--roles", "order"];
    let mut two = env.serve(&flags).await;
    let item = serde_json::json!({ "id": "vase", "stock": 2, "limit_per_buyer": 1 });
    env.create(&one.url, &item).await;
    let mut operator = Visitor::of(&one.url);
    operator.log_in(&env.admin).await;
    let order = async |url: &str, buyer: &str, key: &str| {
        let token = token(env.dir(), &["buyer", buyer]);
        let request = crate::process::order(&Client::new(), url, "vase", &token, key);
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(order(&one.url, "ann", "k").await, 201);
    assert_eq!(order(&two.url, "ann", "k").await, 201, "a repeat");
    assert_eq!(order(&two.url, "ann", "other").await, 409, "the limit");
    assert_eq!(order(&two.url, "bob", "k").await, 201);
    for buyer in 0..10 {
        let url = if buyer % 2 == 0 { &one.url } else { &two.url };
        assert_eq!(order(url, &format!("late-{buyer}"), "k").await, 409);
    }
    let counted = |page: &str, id: &str| {
        let begin = format!("id=\"funnel-{id}\">");
        let rest = page.split(&begin).nth(1).unwrap_or("none");
        rest.split('<').next().unwrap().to_owned()
    };
    let complete = async |operator: &mut Visitor| {
        let page = operator.get("/console/items/vase").await.text;
        let shown = ["arrived", "limited", "repeated", "took"].map(|id| counted(&page, id));
        let refused = ["shed", "sold-out"].map(|id| counted(&page, id).parse::<u32>().unwrap_or(0));
        shown == ["14", "1", "1", "2"] && refused.iter().sum::<u32>() == 10
    };
    let mut browser = Visitor::of(&one.url);
    browser.log_in(&env.admin).await;
    eventually("all counts", async || complete(&mut browser).await).await;

    let page = operator.get("/console/system").await.text;
    for shown in [
        "<td>order, recorder</td>",
        "<td>order</td>",
        "No reconciler runs",
        "The ledger has every outbox entry.",
        "flushes every commit",
    ] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    assert_eq!(two.interrupt(), Some(0));
    eventually("the process that ended leaves", async || {
        let page = browser.get("/console/system").await.text;
        !page.contains("<td>order</td>")
    })
    .await;
    assert!(complete(&mut browser).await, "its counts stay");
}

/// The page of the system is where an operator looks when a store is down.
#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_the_system_says_which_store_does_not_answer() {
    let mut env = crate::test_env::TestEnv::new().await;
    let flags = ["--roles", "order,recorder", AT_LISTEN];
    let service = env.serve(&flags).await;
    let mut operator = Visitor::of(&service.url);
    operator.log_in(&env.admin).await;
    let page = operator.get("/console/system").await.text;
    assert!(!page.contains("Cannot be read"), "{page}");
    env.redis.kill().await.unwrap();
    eventually("the page names the part", async || {
        let page = operator.get("/console/system").await;
        assert_eq!(page.status, 200);
        let redis = page.text.split("id=\"redis\"").nth(1).unwrap();
        let redis = redis.split("</section>").next().unwrap();
        redis.contains("Cannot be read") && page.text.contains("synchronous FULL")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn before_its_window_an_item_counts_down_and_refuses_orders() {
    let folder = tempfile::tempdir().unwrap();
    let up = Serving::up(folder.path());
    let admin = token(folder.path(), &["admin"]);
    let item = serde_json::json!({ "id": "jar", "stock": 5, "opens_at": "2099-01-01T00:00:00Z" });
    create(&up.url, &admin, &item).await;
    let mut visitor = Visitor::of(&up.url);
    let page = visitor.get("/sale/jar").await.text;
    assert!(
        page.contains("Opens in ") && page.contains("2099-01-01 00:00:00 UTC"),
        "{page}"
    );
    let form = vec![("key", field(&page, "key"))];
    let refused = visitor.post("/sale/jar/orders", form).await;
    assert_eq!(refused.location, "/sale/jar?outcome=not_open");
    let page = visitor.get(&refused.location).await.text;
    assert!(page.contains("not on sale now"), "{page}");
    visitor.log_in(&admin).await;
    let items = visitor.get("/console").await.text;
    assert!(items.contains("Opens in "), "{items}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_console_moves_to_the_operators_and_can_be_switched_off() {
    let folder = tempfile::tempdir().unwrap();
    let operators = format!("127.0.0.1:{}", free_port().await);
    // Longer than `interrupt` waits.
    let flags = [
        "--operators-listen",
        &operators,
        "--drain-timeout-ms",
        "600000",
    ];
    let mut up = Serving::up_with(folder.path(), &flags);
    let console = format!("http://{operators}/console");
    assert!(
        up.printed.iter().any(|line| line.contains(&console)),
        "{:?}",
        up.printed
    );
    assert_eq!(Visitor::of(&up.url).get("/console").await.status, 404);
    assert_eq!(Visitor::of(&up.url).get("/sale/demo").await.status, 200);
    let mut operator = Visitor::of(&format!("http://{operators}"));
    assert_eq!(operator.get("/sale/demo").await.status, 404);
    operator.log_in(&token(folder.path(), &["admin"])).await;
    // An open stream of events must not delay the end of the process.
    let events = operator.events("/console/events").await;
    assert_eq!(up.interrupt(), Some(0));
    drop(events);

    let up = Serving::up_with(folder.path(), &["--console", "off"]);
    assert_eq!(Visitor::of(&up.url).get("/console").await.status, 404);
    assert!(
        !up.printed.iter().any(|line| line.contains("/console")),
        "{:?}",
        up.printed
    );
}

/// Ten guesses of one address in a minute, and then no token is compared, the right one neither.
/// Clients behind a trusted proxy count by themselves.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_guesses_tokens_has_to_wait_and_others_log_in() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--trusted-proxies", "127.0.0.1"];
    let up = Serving::up_with(folder.path(), &flags);
    let admin = token(folder.path(), &["admin"]);
    let client = Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap();
    let log_in = async |address: &str, token: &str| {
        let request = client
            .post(format!("{}/console/login", up.url))
            .header(header::ORIGIN, &up.url)
            .header("X-Forwarded-For", address)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        request.body(format!("token={token}")).send().await.unwrap()
    };
    let throttled = eventually_some("an address that has to wait", async || {
        // A minute may end between two guesses.
        let answer = log_in("192.0.2.1", "a-guess").await;
        assert!([401, 429].contains(&answer.status().as_u16()), "{answer:?}");
        (answer.status() == 429).then_some(answer)
    })
    .await;
    let seconds = throttled.headers()[header::RETRY_AFTER].to_str().unwrap();
    assert!(
        (1..=60).contains(&seconds.parse::<u32>().unwrap()),
        "{seconds}"
    );
    let page = throttled.text().await.unwrap();
    assert!(page.contains("Too many logins were refused"), "{page}");
    assert_eq!(log_in("192.0.2.2", &admin).await.status(), 303);
    let metrics = eventually_some("the count of both", async || {
        let metrics = client.get(format!("{}/metrics", up.url)).send().await;
        let metrics = metrics.unwrap().text().await.unwrap();
        let has = |outcome| metrics.contains(&format!("logins_total{{outcome=\"{outcome}\"}}"));
        ["accepted", "refused", "throttled"]
            .iter()
            .all(has)
            .then_some(metrics)
    })
    .await;
    let refused = metrics
        .lines()
        .find_map(|line| line.strip_prefix("stockade_console_logins_total{outcome=\"refused\"} "));
    assert!(
        refused.unwrap().parse::<u32>().unwrap() >= 10,
        "{refused:?}"
    );
}

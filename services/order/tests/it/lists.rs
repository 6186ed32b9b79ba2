//! Lists: every row once, whatever the page size, and bad parameters refused by name.

use std::collections::BTreeSet;

use domain::{IdempotencyKey, PaymentId, Quantity, Stated};
use futures::{StreamExt, stream};
use ledger::NewJournalEntry;
use order::engine::{Paid, Payment, Placement, StatedBy};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use testkit::{eventually, tested_in};

use crate::env::{Answer, Env, Options, TestEnv, on_both_ledgers, open};

/// All rows of a list, which must have the pages that `after` and `limit` ask for.
async fn all(request: impl Fn(&str) -> RequestBuilder, path: &str, limit: usize) -> Vec<Value> {
    let (mut rows, mut after) = (Vec::new(), String::new());
    let sign = if path.contains('?') { '&' } else { '?' };
    loop {
        let page = Answer::of(request(&format!("{path}{sign}limit={limit}{after}"))).await;
        assert_eq!(page.status, 200, "{page:?}");
        assert_eq!(page.header("cache-control"), Some("no-store"));
        let data = page.rows();
        assert!(data.len() <= limit, "{page:?}");
        let is_last = page.body["next"].is_null();
        let fewest = if path.contains("state=") { 1 } else { limit };
        assert!(is_last || data.len() >= fewest, "{page:?}");
        rows.extend(data.iter().cloned());
        match page.body["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return rows,
        }
    }
}

fn ids(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["id"].as_str().unwrap()).collect()
}

fn keys(row: &Value) -> BTreeSet<&str> {
    row.as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn the_orders_of_an_item_are_listed_once_each_whatever_the_page_size(env: Env) {
    let item = json!({ "stock": 50, "price": 250, "currency": "EUR", "hold_seconds": 60 });
    let item = env.create(item).await;
    let other = env.create(json!({ "stock": 50 })).await;
    let path = format!("/v1/items/{item}/orders");
    let admin = |path: &str| env.admin(Method::GET, path);
    assert!(all(admin, &path, 2).await.is_empty());
    let mut placed = BTreeSet::new();
    for buyer in 0..7 {
        placed.insert(env.hold(&item, &format!("buyer-{buyer}"), "k").await);
        env.hold(&other, &format!("buyer-{buyer}"), "k").await;
    }
    let placed: Vec<_> = placed.iter().map(String::as_str).collect();
    for limit in [1, 2, 3, 7, 8, 1000] {
        assert_eq!(ids(&all(admin, &path, limit).await), placed, "{limit}");
    }
    let answer = env.order(&item, "ann", "k", 3).await;
    let order = answer.is_held().body["id"].as_str().unwrap();
    let report = json!({ "payment": "pay-1", "order": order, "amount": 750 });
    let done = Answer::of(env.report(0, order, &report)).await;
    done.is_now("confirmed");
    let rows = all(admin, &format!("{path}?state=confirmed"), 2).await;
    assert_eq!(ids(&rows), [order]);
    let row = &rows[0];
    let time = |name: &str| {
        row[name]
            .as_str()
            .unwrap()
            .parse::<jiff::Timestamp>()
            .unwrap()
    };
    assert_eq!(
        time("expires_at").as_second() - time("created_at").as_second(),
        60
    );
    assert_eq!(
        *row,
        json!({ "id": order, "item": item, "buyer": "ann", "state": "confirmed", "quantity": 3, "amount": 750,
                "currency": "EUR", "payment": "pay-1", "created_at": row["created_at"],
                "expires_at": answer.body["expires_at"], "version": 2, "cart": null })
    );
    assert_eq!(
        ids(&all(admin, &format!("{path}?state=held"), 2).await),
        placed
    );
    assert!(
        all(admin, &format!("{path}?state=expired"), 2)
            .await
            .is_empty()
    );
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn a_buyer_lists_the_own_orders_of_all_items_and_no_others(env: Env) {
    let mut placed = BTreeSet::new();
    for quantity in 1..4 {
        let item = env.create(json!({ "stock": 10 })).await;
        for key in ["k1", "k2"] {
            let order = env.order(&item, "ann", key, quantity).await;
            placed.insert(order.is_held().id());
        }
        env.hold(&item, "bob", "k1").await;
    }
    let cancelled = placed.first().unwrap();
    env.cancel("ann", cancelled).await.is_now("cancelled");
    let placed: Vec<_> = placed.iter().map(String::as_str).collect();
    let ann = |path: &str| env.buyer("ann", Method::GET, path);
    for limit in [1, 4, 6, 100] {
        assert_eq!(ids(&all(ann, "/v1/orders", limit).await), placed, "{limit}");
    }
    let rows = all(ann, "/v1/orders", 100).await;
    assert!(
        rows.iter().all(|row| row.get("buyer").is_none()),
        "{rows:?}"
    );
    assert_eq!(rows[0]["state"], "cancelled");
    let none = |path: &str| env.buyer("a buyer without orders", Method::GET, path);
    assert!(all(none, "/v1/orders", 1).await.is_empty());

    let page = Answer::of(ann("/v1/orders?limit=1")).await;
    let next = page.body["next"].as_str().unwrap();
    let of_another = env.buyer("bob", Method::GET, &format!("/v1/orders?after={next}"));
    Answer::of(of_another).await.is(400, "invalid_request");
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn items_are_listed_with_their_units(env: Env) {
    let mut created = BTreeSet::new();
    for stock in [5, 300, 0] {
        created.insert(env.create(json!({ "stock": stock, "segments": 2 })).await);
    }
    let item = created.first().unwrap();
    let admin = |path: &str| env.admin(Method::GET, path);
    for limit in [1, 3, 100] {
        let rows = all(admin, "/v1/items", limit).await;
        assert_eq!(
            ids(&rows),
            created.iter().map(String::as_str).collect::<Vec<_>>()
        );
    }
    let order = env.hold(item, "ann", "k").await;
    env.hold(item, "bob", "k").await;
    env.confirm(&order, "pay-1").await;
    let shown = env.admin_gets(&format!("/v1/items/{item}")).await;
    let row = &all(admin, "/v1/items", 1).await[0];
    assert_eq!((&row["held"], &row["confirmed"]), (&json!(1), &json!(1)));
    for (name, value) in row.as_object().unwrap() {
        match &**name {
            "segment_count" => assert_eq!(*value, 2),
            "version" => assert_eq!(shown.header("etag"), Some(&*format!("\"{value}\""))),
            name => assert_eq!(*value, shown.body[name], "{name}"),
        }
    }
}

#[tested_in(on_both_ledgers(Options::reconciled()))]
async fn money_that_must_be_returned_is_listed_until_it_was_returned(env: Env) {
    let admin = |path: &str| env.admin(Method::GET, path);
    assert!(all(admin, "/v1/refunds-due", 1).await.is_empty());
    let item = env.create(json!({ "stock": 1, "hold_seconds": 1 })).await;
    let late = env.hold(&item, "ann", "k").await;
    env.becomes(&late, "expired").await;
    let paid = sold_again(&env, &item).await;
    env.confirm(&paid, "pay-1").await;
    env.pay(&late, "pay-2").await.is_now("refund_due");
    env.pay(&paid, "pay-3").await.is(409, "already_paid");
    env.pay(&late, "pay-4").await.is(409, "already_paid");
    for limit in [1, 2, 3, 4] {
        let rows = all(admin, "/v1/refunds-due", limit).await;
        let payments: Vec<_> = rows.iter().map(|row| &row["payment"]).collect();
        assert_eq!(payments, ["pay-2", "pay-3", "pay-4"], "{limit}");
    }
    let rows = all(admin, "/v1/refunds-due", 10).await;
    assert_eq!(
        rows[0],
        json!({ "id": late, "reason": "refund_due", "order": late, "item": item, "buyer": "ann", "state": "refund_due",
                "quantity": 1, "payment": "pay-2", "amount": 0, "currency": "USD", "reported_at": null,
                "idempotency_key": rows[0]["idempotency_key"], "cart": null })
    );
    let keys: std::collections::BTreeSet<_> = rows
        .iter()
        .map(|row| row["idempotency_key"].to_string())
        .collect();
    assert_eq!(keys.len(), 3, "{keys:?}");
    assert_eq!(
        (&rows[1]["reason"], &rows[1]["order"], &rows[1]["state"]),
        (
            &json!("unmatched_payment"),
            &json!(paid),
            &json!("confirmed")
        )
    );
    assert!(rows[1]["id"].as_str().unwrap().starts_with("journal-"));
    let done = async |id: &str| {
        let path = format!("/v1/refunds-due/{id}/done");
        Answer::of(env.admin(Method::POST, &path)).await
    };
    for unknown in ["journal-0", "journal-x", "nonsense", &paid] {
        done(unknown).await.is(404, "refund_not_found");
    }
    for _ in 0..2 {
        let answer = done(&late).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.body["state"], "refunded");
    }
    let refunds = env.journal(&item, "refund").await;
    assert_eq!(refunds.len(), 1, "{refunds:?}");
    assert_eq!(all(admin, "/v1/refunds-due", 10).await, rows[1..]);
    for _ in 0..2 {
        let answer = done(rows[1]["id"].as_str().unwrap()).await;
        assert_eq!((answer.status, &answer.body), (200, &rows[1]));
    }
    assert_eq!(all(admin, "/v1/refunds-due", 10).await, rows[2..]);
    let noted = env.journal(&item, "payment_refunded").await;
    assert_eq!(noted.len(), 1);
    assert_eq!(noted[0]["after"]["payment"], "pay-3");
    env.pay(&paid, "pay-3").await.is(409, "payment_returned");
    assert_eq!(
        all(admin, "/v1/refunds-due", 10).await,
        rows[2..],
        "reported again"
    );
    // Its money is returned, and not because of a row of the list.
    env.refund(&paid).await.is_now("refunded");
    done(&paid).await.is(404, "refund_not_found");
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn a_page_has_as_many_payments_as_were_asked_for_unless_the_list_ends(env: Env) {
    let item = env.create(json!({ "stock": 9 })).await;
    let order = env.hold(&item, "ann", "k").await;
    env.confirm(&order, "pay-1").await;
    let of_an_earlier_release = NewJournalEntry {
        item: item.parse().unwrap(),
        actor: "payment".into(),
        action: "unmatched_payment".into(),
        token: None,
        before: json!({}),
        after: json!({ "payment": "with other fields" }),
    };
    for payment in ["pay-2", "pay-3", "pay-4"] {
        for _ in 0..2 {
            env.engines[0]
                .ledger
                .note(&of_an_earlier_release)
                .await
                .unwrap();
        }
        env.pay(&order, payment).await.is(409, "already_paid");
    }
    let admin = |path: &str| env.admin(Method::GET, path);
    for limit in 1..=4 {
        let rows = all(admin, "/v1/refunds-due", limit).await;
        let payments: Vec<_> = rows.iter().map(|row| &row["payment"]).collect();
        assert_eq!(payments, ["pay-2", "pay-3", "pay-4"], "{limit}");
    }
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn a_payment_is_due_back_in_its_own_currency_unless_its_order_accepted_it_since(env: Env) {
    let priced = json!({ "stock": 5, "price": 1999, "currency": "EUR" });
    let item = env.create(priced.clone()).await;
    let order = env.hold(&item, "ann", "k").await;
    let id = order.parse().unwrap();
    let pay = async |payment: &str, amount: u64, currency: &str| {
        let payment = Payment {
            id: PaymentId::new(payment).unwrap(),
            amount: Some(amount),
            currency: Some(currency.into()),
        };
        env.engines[0].pay(id, &payment).await.unwrap()
    };
    pay("pay-1", 2999, "USD").await;
    pay("pay-2", 1, "EUR").await;
    let admin = |path: &str| env.admin(Method::GET, path);
    let due = async || -> Vec<Value> {
        let rows = all(admin, "/v1/refunds-due", 10).await;
        let of = |row: &Value| json!([row["payment"], row["amount"], row["currency"]]);
        rows.iter().map(of).collect()
    };
    let dollars = || json!(["pay-1", 2999, "USD"]);
    assert_eq!(due().await, [dollars(), json!(["pay-2", 1, "EUR"])]);
    assert!(matches!(pay("pay-2", 1999, "EUR").await, Paid::Done(_)));
    assert_eq!(due().await, [dollars()], "accepted");
    env.refund(&order).await.is_now("refunded");
    assert_eq!(due().await, [dollars()], "returned with its order");

    let other = env.hold(&item, "bob", "k").await;
    let spent = env.pay_amount(&other, "pay-2", 1999).await;
    spent.is(409, "payment_returned");
    assert_eq!(due().await, [dollars()], "it was returned once");

    // One payment for two orders has paid the first: its money is returned with that alone.
    let paid = env.hold(&item, "dan", "k").await;
    env.confirm_for(&paid, "pay-4", 1999).await;
    let used = env.pay_amount(&other, "pay-4", 1999).await;
    used.is(409, "payment_already_used");
    assert_eq!(due().await, [dollars()]);
    let noted = env.journal(&item, "unmatched_payment").await;
    let noted = noted
        .iter()
        .find(|entry| entry["after"]["payment"] == "pay-4");
    let row = format!("/v1/refunds-due/journal-{}/done", noted.unwrap()["id"]);
    let done = Answer::of(env.admin(Method::POST, &row)).await;
    done.is(404, "refund_not_found");
    let kept = Answer::of(admin(&format!("/v1/orders/{paid}"))).await;
    kept.is_now("confirmed");

    // The same for a cart, also of a payment that was reported for one of its lines first.
    let cart = env.held_cart("ann", "c", &[(&item, 1)]).await;
    let refused = env.pay_cart(&cart, "pay-3", Some(1)).await;
    refused.is(422, "amount_mismatch");
    let shown = env.read_cart(&cart).await;
    let line = shown.body["lines"][0]["order"].as_str().unwrap();
    let refused = env.pay_amount(line, "pay-3", 1999).await;
    refused.is(409, "order_in_cart");
    assert_eq!(due().await.len(), 3);
    env.confirm_cart(&cart, "pay-3", Some(1999)).await;
    assert_eq!(due().await, [dollars()]);
}

#[tested_in(on_both_ledgers(Options::reconciled()))]
async fn the_row_of_an_order_in_a_cart_names_the_cart_in_every_format(env: Env) {
    let item = json!({ "stock": 5, "hold_seconds": 1, "price": 10 });
    let item = env.create(item).await;
    let alone = env.hold(&item, "ann", "alone").await;
    let cart = env.expiring_cart("ann", "k", &[(&item, 1)]).await;
    let shown = env.read_cart(&cart).await;
    let line = shown.body["lines"][0]["order"].as_str().unwrap();
    env.becomes(&alone, "expired").await;
    env.put_state(&item, "paused").await;
    let late = env.pay_cart(&cart, "pay-1", Some(10)).await;
    late.is_now("refund_due");
    let refused = env.pay_cart(&cart, "pay-2", Some(10)).await;
    refused.is(409, "already_paid");
    let of_item = format!("/v1/items/{item}/orders");
    // Orders that belong to the cart, and the others.
    for (path, is_buyers, in_cart, alone) in [
        (&*of_item, false, 1, 1),
        ("/v1/orders", true, 1, 1),
        ("/v1/refunds-due", false, 2, 0),
    ] {
        let get = |path: &str| match is_buyers {
            true => env.buyer("ann", Method::GET, path),
            false => env.admin(Method::GET, path),
        };
        let count = |carts: &[Option<&str>]| {
            let of_cart = |named: &&Option<&str>| **named == Some(&*cart);
            assert_eq!(
                carts.iter().filter(of_cart).count(),
                in_cart,
                "{path}: {carts:?}"
            );
            assert_eq!(carts.len(), in_cart + alone, "{path}: {carts:?}");
            assert_eq!(carts.iter().flatten().count(), in_cart, "{path}: {carts:?}");
        };
        let rows = all(get, path, 10).await;
        assert!(rows.iter().any(|row| row["id"] == line), "{rows:?}");
        count(
            &rows
                .iter()
                .map(|row| row["cart"].as_str())
                .collect::<Vec<_>>(),
        );
        let lines = text(get(&format!("{path}?format=jsonl"))).await;
        let read: Vec<Value> = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(read, rows);
        let csv = text(get(&format!("{path}?format=csv"))).await;
        let mut table = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let column = table
            .next()
            .unwrap()
            .iter()
            .position(|name| *name == "cart")
            .unwrap();
        let cells: Vec<_> = table
            .map(|cells| Some(cells[column]).filter(|cell| !cell.is_empty()))
            .collect();
        count(&cells);
    }
}

/// Buys the unit of an expired order once it has come back.
async fn sold_again(env: &TestEnv, item: &str) -> String {
    let mut order = None;
    eventually("the return of the unit", async || {
        let answer = env.order(item, "bob", "k", 1).await;
        order = answer.body["id"].as_str().map(str::to_owned);
        if order.is_none() {
            answer.is(409, "sold_out");
        }
        order.is_some()
    })
    .await;
    order.unwrap()
}

#[tested_in(open(Options::default()))]
async fn a_bad_parameter_is_refused_by_its_pointer(env: Env) {
    let item = env.create(json!({ "stock": 5 })).await;
    for buyer in ["ann", "bob"] {
        env.hold(&item, buyer, "k").await;
    }
    let path = format!("/v1/items/{item}/orders");
    let page = env.admin_gets(&format!("{path}?limit=1")).await;
    let next = page.body["next"].as_str().unwrap();
    // Any other first letter: it is of the tag, and none of its bits are padding.
    let other = if next.starts_with('A') { 'B' } else { 'A' };
    let forged = format!("after={other}{}", &next[1..]);
    let cut = format!("after={}", &next[1..]);
    let table = [
        ("limit=0", "/limit"),
        ("limit=1001", "/limit"),
        ("limit=10000", "/limit"),
        ("limit=-1", "/limit"),
        ("limit=", "/limit"),
        ("limit=two", "/limit"),
        ("limit=1&limit=2", "/limit"),
        ("after=&after=", "/after"),
        ("after=nonsense", "/after"),
        ("after=%20", "/after"),
        (&*forged, "/after"),
        (&*cut, "/after"),
        ("state=lost", "/state"),
        ("state=", "/state"),
        ("format=xml", "/format"),
        ("colour=red", "/colour"),
    ];
    for (query, pointer) in table {
        let answer = env.admin_gets(&format!("{path}?{query}")).await;
        let errors = &answer.is(400, "invalid_request").body["errors"];
        assert_eq!(errors[0]["pointer"], pointer, "{query}: {answer:?}");
        assert_eq!(errors.as_array().unwrap().len(), 1, "{query}");
        let detail = errors[0]["detail"].as_str().unwrap();
        assert!(detail.starts_with("expected"), "{query}: {detail}");
    }
    let both = env.admin_gets(&format!("{path}?limit=0&state=lost")).await;
    let errors = both.is(400, "invalid_request").body["errors"]
        .as_array()
        .unwrap();
    assert_eq!(errors.len(), 2, "all are named");
    for other in ["/v1/items", "/v1/refunds-due"] {
        for query in [format!("after={next}"), "state=held".into()] {
            let answer = env.admin_gets(&format!("{other}?{query}")).await;
            answer.is(400, "invalid_request");
        }
    }
    let unknown = env.admin_gets("/v1/items/no-such-item/orders").await;
    unknown.is(404, "item_not_found");
    for admins in ["/v1/items", "/v1/refunds-due", &*path] {
        env.buyer_gets("ann", admins).await.is(403, "forbidden");
        env.anyone_gets(admins).await.is(401, "unauthorized");
    }
    env.admin_gets("/v1/orders").await.is(401, "unauthorized");
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn every_list_begins_without_a_cursor_and_refuses_one_of_no_page_and_a_bad_limit(env: Env) {
    let item = env.create(json!({ "stock": 5 })).await;
    for key in ["k1", "k2"] {
        env.hold(&item, "ann", key).await;
    }
    let of_item = ["orders", "journal"].map(|list| format!("/v1/items/{item}/{list}"));
    let admins = [
        "/v1/items",
        "/v1/refunds-due",
        "/v1/journal",
        &*of_item[0],
        &*of_item[1],
    ];
    let lists = admins.map(|list| (list, true));
    let lists = lists
        .into_iter()
        .chain([("/v1/orders", false), ("/v1/carts", false)]);
    for (list, is_admins) in lists {
        let get = async |query: &str| {
            let path = format!("{list}?{query}");
            Answer::of(match is_admins {
                true => env.admin(Method::GET, &path),
                false => env.buyer("ann", Method::GET, &path),
            })
            .await
        };
        let page = get("limit=1").await;
        let next = page.body["next"]
            .as_str()
            .unwrap_or("AAAAAAAAAAAAAAAAAAAAAAAA");
        let first = get("limit=1&after=").await;
        assert_eq!(first.status, 200);
        assert_eq!(first.body["next"], page.body["next"]);
        let other = if next.starts_with('A') { 'B' } else { 'A' };
        for (query, pointer) in [
            ("limit=0".to_owned(), "/limit"),
            ("limit=10000".to_owned(), "/limit"),
            ("after=nonsense".to_owned(), "/after"),
            (format!("after={other}{}", &next[1..]), "/after"),
        ] {
            let answer = get(&query).await;
            answer.is(400, "invalid_request");
            let errors = &answer.body["errors"];
            assert_eq!(errors[0]["pointer"], pointer, "{list}?{query}: {answer:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_has_the_whole_list() {
    const ORDERS: usize = 2100;
    on_both_ledgers(Options::default(), async |env| {
        let item = env.create(json!({ "stock": ORDERS })).await;
        let path = format!("/v1/items/{item}/orders");
        let columns =
            "id,item,buyer,state,quantity,amount,currency,payment,created_at,expires_at,version,cart\n";
        assert_eq!(
            text(env.admin(Method::GET, &format!("{path}?format=csv"))).await,
            columns
        );
        assert_eq!(
            text(env.admin(Method::GET, &format!("{path}?format=jsonl"))).await,
            ""
        );

        place_many(&env, &item, ORDERS).await;
        let expected = all(|path| env.admin(Method::GET, path), &path, 1000).await;
        assert_eq!(expected.len(), ORDERS);
        let lines = text(env.admin(Method::GET, &format!("{path}?format=jsonl"))).await;
        let lines: Vec<Value> = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert!(lines == expected, "{} of {ORDERS} lines", lines.len());

        // `limit` is the size of a page, and a stream has no pages.
        let csv = text(env.admin(Method::GET, &format!("{path}?format=csv&limit=1"))).await;
        let accepted = env
            .admin(Method::GET, &path)
            .header("Accept", "text/csv, */*;q=0.1");
        assert_eq!(text(accepted).await, csv);
        let mut csv = csv.lines();
        assert_eq!(csv.next(), Some(columns.trim_end()));
        let found: Vec<_> = csv.map(|row| row.split(',').next().unwrap()).collect();
        assert_eq!(found, ids(&expected));

        let page = env.admin_gets(&format!("{path}?limit=1000")).await;
        let next = page.body["next"].as_str().unwrap();
        let rest = text(env.admin(Method::GET, &format!("{path}?format=jsonl&after={next}"))).await;
        assert_eq!(rest.lines().count(), ORDERS - 1000);
    })
    .await;
}

#[tested_in(open(Options::default()))]
async fn the_columns_of_csv_are_the_fields_of_json(env: Env) {
    let item = json!({ "stock": 2, "title": "a \"quoted\", title" });
    let item = env.create(item).await;
    let order = env.hold(&item, "ann", "k").await;
    env.pay(&order, "pay-1").await;
    env.pay(&order, "pay-2").await;
    let admin = |path: &str| env.admin(Method::GET, path);
    let ann = |path: &str| env.buyer("ann", Method::GET, path);
    for path in [
        "/v1/items",
        "/v1/refunds-due",
        &*format!("/v1/items/{item}/orders"),
    ] {
        assert_same_columns(&admin, path).await;
    }
    assert_same_columns(&ann, "/v1/orders").await;
    let journal = admin(&format!("/v1/items/{item}/journal?format=csv"));
    Answer::of(journal).await.is(400, "invalid_request");
    let csv = text(admin("/v1/items?format=csv")).await;
    assert!(csv.contains("\"a \"\"quoted\"\", title\""), "{csv}");
}

async fn assert_same_columns(request: &impl Fn(&str) -> RequestBuilder, path: &str) {
    let rows = all(request, path, 10).await;
    let csv = text(request(&format!("{path}?format=csv"))).await;
    let header: Vec<_> = csv.lines().next().unwrap().split(',').collect();
    assert_eq!(
        header.iter().copied().collect::<BTreeSet<_>>(),
        keys(&rows[0]),
        "{path}"
    );
    let lines = text(request(&format!("{path}?format=jsonl"))).await;
    let written = lines.lines().next().unwrap();
    let places: Vec<_> = header
        .iter()
        .map(|name| written.find(&format!("\"{name}\":")))
        .collect();
    assert!(places.is_sorted(), "{path}: {header:?}: {written}");
}

async fn text(request: RequestBuilder) -> String {
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 200);
    response.text().await.unwrap()
}

/// Places orders of one unit each through the engine, and waits until the ledger has them.
async fn place_many(env: &TestEnv, item: &str, orders: usize) {
    let placements = (0..orders).map(|n| Placement {
        item: item.parse().unwrap(),
        buyer: format!("buyer-{n}").parse().unwrap(),
        key: IdempotencyKey::new("k").unwrap(),
        quantity: Quantity::new(1).unwrap(),
        stated: Stated::default(),
        stated_by: StatedBy::Admin,
        respond_async: false,
    });
    stream::iter(placements)
        .for_each_concurrent(256, async |placement| {
            env.engines[0].place(placement).await.unwrap();
        })
        .await;
}

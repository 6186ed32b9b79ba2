//! The headers of every page: what it may run, and that no other page shows it in a frame.

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine, prelude::BASE64_STANDARD};
use reqwest::header;
use ring::digest::{SHA256, digest};
use serde_json::Value;

use super::visitor::{Answer, Visitor};
use crate::process::{Serving, token};

/// Where the walk begins. It follows the links and the forms of each page, and takes every path of
/// the API's description.
const FIRST: [&str; 15] = [
    "/",
    "/sale/demo",
    "/sale/no-such-item",
    "/console",
    "/console/login",
    "/console/system",
    "/console/items/demo",
    "/console/items/no-such-item",
    "/console/items/demo/pause",
    "/console/items/demo/no-such-action",
    "/docs",
    "/docs/",
    "/docs/problems",
    "/openapi.json",
    "/no/such/path",
];

/// Pages that the walk must have seen, so that it cannot pass by seeing none.
const PAGES: [&str; 8] = [
    "/sale/demo",
    "/sale/no-such-item",
    "/console",
    "/console/system",
    "/console/items/demo",
    "/console/items/demo/pause",
    "/docs/",
    "/docs/problems",
];

fn text_of<'a>(answer: &'a Answer, name: &str) -> &'a str {
    let value = answer.headers.get(name);
    value.map_or("", |value| value.to_str().unwrap())
}

fn is_html(answer: &Answer) -> bool {
    text_of(answer, header::CONTENT_TYPE.as_str()).starts_with("text/html")
}

/// The attributes of the elements with this name, and the text in them.
fn elements<'a>(page: &'a str, name: &str) -> Vec<(&'a str, &'a str)> {
    let (begin, end) = (format!("<{name}"), format!("</{name}>"));
    let found = page.split(&begin).skip(1).map(|rest| {
        let (attributes, rest) = rest.split_once('>').unwrap();
        let (text, _) = rest.split_once(&end).unwrap_or_else(|| panic!("{page}"));
        (attributes, text)
    });
    found.collect()
}

/// The values of these attributes of all elements.
fn attributes(page: &str, name: &str) -> Vec<String> {
    let begin = format!(" {name}=\"");
    let found = page.split(&begin).skip(1);
    let value = |rest: &str| rest.split('"').next().unwrap().replace("&amp;", "&");
    found.map(value).collect()
}

/// The path on this host that a link of the page at `path` leads to.
fn target(path: &str, link: &str) -> Option<String> {
    let link = link.split('#').next().unwrap_or_default();
    if link.is_empty() || link.contains(':') || link.starts_with("//") {
        return None;
    }
    if link.starts_with('/') {
        return Some(link.to_owned());
    }
    let folder = path.split('?').next().unwrap().rsplit_once('/').unwrap().0;
    Some(format!("{folder}/{}", link.trim_start_matches("./")))
}

/// All answers, by their paths.
async fn walk(visitor: &mut Visitor) -> BTreeMap<String, Answer> {
    let mut open: Vec<String> = FIRST.map(str::to_owned).to_vec();
    let mut seen = BTreeMap::new();
    while let Some(path) = open.pop() {
        if seen.contains_key(&path) {
            continue;
        }
        let answer = visitor.get(&path).await;
        if path == "/openapi.json" {
            open.extend(described(&answer.text));
        }
        if is_html(&answer) {
            let links = ["href", "src", "action"].map(|name| attributes(&answer.text, name));
            open.extend(links.concat().iter().filter_map(|link| target(&path, link)));
        }
        open.extend(target(&path, &answer.location));
        seen.insert(path, answer);
    }
    seen
}

/// The paths of the API that GET reads, each with some value for its parameters.
fn described(description: &str) -> Vec<String> {
    let api: Value = serde_json::from_str(description).unwrap();
    let paths = api["paths"].as_object().unwrap().iter();
    let read = paths.filter(|(_, calls)| calls["get"].is_object());
    let filled = read.map(|(path, _)| {
        let parts = path.split('/').map(|part| match part {
            "{item}" => "demo",
            part if part.starts_with('{') => "none",
            part => part,
        });
        parts.collect::<Vec<_>>().join("/")
    });
    filled.collect()
}

fn hash(text: &str) -> String {
    let hash = BASE64_STANDARD.encode(digest(&SHA256, text.as_bytes()));
    format!("'sha256-{hash}'")
}

/// The sources that the policy names for this kind.
fn sources<'a>(policy: &'a str, kind: &str) -> Vec<&'a str> {
    let mut directives = policy.split(';').map(str::trim);
    let own = directives.find_map(|directive| directive.strip_prefix(kind));
    own.unwrap_or_default().split_whitespace().collect()
}

fn is_protected(path: &str, page: &Answer) {
    let policy = text_of(page, header::CONTENT_SECURITY_POLICY.as_str());
    for (kind, none) in [
        ("default-src", "'none'"),
        ("base-uri", "'none'"),
        ("frame-ancestors", "'none'"),
    ] {
        assert_eq!(sources(policy, kind), [none], "{path}: {policy}");
    }
    assert!(!policy.contains("unsafe"), "{path}: {policy}");
    let referrer = text_of(page, header::REFERRER_POLICY.as_str());
    assert_eq!(referrer, "same-origin", "{path}");
    assert_eq!(nosniff(page), "nosniff", "{path}");
    for (name, kind) in [("script", "script-src"), ("style", "style-src")] {
        let allowed = sources(policy, kind);
        for (attributes, text) in elements(&page.text, name) {
            let needed = match attributes.contains("src=\"") {
                true => "'self'".to_owned(),
                false => hash(text),
            };
            assert!(allowed.contains(&&*needed), "{path}: {needed} in {policy}");
        }
    }
    for attribute in [" style=\"", " onclick=\"", " onload=\""] {
        assert!(!page.text.contains(attribute), "{path} has {attribute}");
    }
}

fn nosniff(answer: &Answer) -> &str {
    text_of(answer, header::X_CONTENT_TYPE_OPTIONS.as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_says_what_it_may_run_and_is_shown_in_no_frame() {
    let folder = tempfile::tempdir().unwrap();
    let up = Serving::up(folder.path());
    let mut visitor = Visitor::of(&up.url);
    let login = visitor.get("/console/login").await;
    assert!(is_html(&login));
    is_protected("/console/login", &login);
    let refused = visitor.log_in("not a token of an admin").await;
    assert!(is_html(&refused) && refused.status == 401);
    is_protected("a refused login", &refused);
    visitor.log_in(&token(folder.path(), &["admin"])).await;

    let answers = walk(&mut visitor).await;
    let mut pages = BTreeSet::new();
    for (path, answer) in &answers {
        if is_html(answer) {
            is_protected(path, answer);
            pages.insert(path.as_str());
        }
    }
    for page in PAGES {
        assert!(pages.contains(page), "{page} is not in {pages:?}");
    }
    for path in [
        "/metrics",
        "/openapi.json",
        "/docs/swagger-ui.css",
        "/docs/swagger-ui-bundle.js",
    ] {
        let answer = &answers[path];
        assert_eq!((answer.status, nosniff(answer)), (200, "nosniff"), "{path}");
    }
}

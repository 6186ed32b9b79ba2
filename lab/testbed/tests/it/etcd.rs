//! One etcd server.

use std::{io, time::Duration};

use testbed::{Etcd, etcd::EtcdKind, timeout};

use crate::{contract::Probe, support::exchange_within};

/// Sends a request to the JSON gateway. Keys and values are in base 64: `YQ==` is `a`, `MQ==` is
/// `1`.
fn post(timeout: Duration, etcd: &Etcd, path: &str, body: &str) -> io::Result<String> {
    let head = format!(
        "POST /v3/{path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    exchange_within(timeout, etcd.port(), format!("{head}{body}").as_bytes())
}

impl Probe for EtcdKind {
    const WRONG_SETTING: (&'static str, &'static str) = ("election-timeout", "11");
    const COMPLAINT: &'static str = "election-timeout[11ms]";

    fn url(server: &Etcd) -> String {
        server.url()
    }

    async fn write(server: &Etcd) {
        let pair = r#"{"key":"YQ==","value":"MQ=="}"#;
        let answer = post(timeout(), server, "kv/put", pair).unwrap();
        assert!(answer.contains(r#""revision":"2""#), "{answer}");
    }

    async fn written(server: &Etcd, timeout: Duration) -> io::Result<u32> {
        let answer = post(timeout, server, "kv/range", r#"{"key":"YQ=="}"#)?;
        Ok(u32::from(answer.contains(r#""value":"MQ==""#)))
    }
}

#[tokio::test]
async fn a_lease_may_be_as_short_as_a_second() {
    let etcd = Etcd::start().await.unwrap();
    let answer = post(timeout(), &etcd, "lease/grant", r#"{"TTL":1}"#).unwrap();
    assert!(answer.contains(r#""TTL":"1""#), "{answer}");
}

#[tokio::test]
async fn a_start_can_be_spawned() {
    let etcd = tokio::spawn(Etcd::start()).await.unwrap().unwrap();
    tokio::spawn(etcd.stop()).await.unwrap().unwrap();
}

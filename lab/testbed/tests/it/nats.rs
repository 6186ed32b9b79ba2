//! One NATS server.

use std::{io, time::Duration};

use testbed::{Nats, nats::NatsKind, timeout};

use crate::{
    contract::Probe,
    support::{eventually, exchange_within},
};

/// Sends requests without a client. The server ends the connection at the last one.
fn ask(timeout: Duration, nats: &Nats, requests: &str) -> io::Result<String> {
    let connect = r#"CONNECT {"verbose":false}"#;
    let requests = format!("{connect}\r\n{requests}END\r\n");
    exchange_within(timeout, nats.port(), requests.as_bytes())
}

/// JetStream keeps each stream in a folder of its name.
fn has_stream(nats: &Nats) -> bool {
    let folder = nats.dir().join("data/jetstream/$G/streams/A");
    folder.is_dir()
}

impl Probe for NatsKind {
    const WRONG_SETTING: (&'static str, &'static str) = ("config", "/nowhere/nats.conf");
    const COMPLAINT: &'static str = "/nowhere/nats.conf";

    fn url(server: &Nats) -> String {
        server.url()
    }

    async fn write(server: &Nats) {
        let config = r#"{"name":"A","subjects":["a"]}"#;
        let request = format!(
            "SUB reply 1\r\nPUB $JS.API.STREAM.CREATE.A reply {}\r\n{config}\r\n",
            config.len()
        );
        ask(timeout(), server, &request).unwrap();
        eventually("the creation of the stream", || has_stream(server));
    }

    async fn written(server: &Nats, timeout: Duration) -> io::Result<u32> {
        let greeting = ask(timeout, server, "")?;
        assert!(greeting.contains(r#""jetstream":true"#), "{greeting}");
        Ok(u32::from(has_stream(server)))
    }
}

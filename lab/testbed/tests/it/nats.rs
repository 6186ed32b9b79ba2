//! One NATS server.

use std::path::PathBuf;

use testbed::{LocalError, Nats, TestbedError};

use crate::support::{eventually, exchange, is_alive};

/// Sends requests without a client. The server ends the connection at the last one.
fn ask(nats: &Nats, requests: &str) -> std::io::Result<String> {
    let connect = r#"CONNECT {"verbose":false}"#;
    exchange(
        nats.port(),
        format!("{connect}\r\n{requests}END\r\n").as_bytes(),
    )
}

fn create_stream(nats: &Nats) {
    let config = r#"{"name":"A","subjects":["a"]}"#;
    let request = format!(
        "SUB reply 1\r\nPUB $JS.API.STREAM.CREATE.A reply {}\r\n{config}\r\n",
        config.len()
    );
    ask(nats, &request).unwrap();
    eventually("the creation of the stream", || has_stream(nats));
}

/// JetStream keeps each stream in a folder of its name.
fn has_stream(nats: &Nats) -> bool {
    let folder = nats.dir().join("data/jetstream/$G/streams/A");
    folder.is_dir()
}

#[tokio::test]
async fn a_killed_server_starts_again_on_its_port_and_data() {
    let mut nats = Nats::start().await.unwrap();
    create_stream(&nats);
    let (url, pid) = (nats.url(), nats.pid());
    nats.kill().await.unwrap();
    assert!(ask(&nats, "").is_err());
    nats.restart().await.unwrap();
    assert_eq!(nats.url(), url);
    assert_ne!(nats.pid(), pid);
    assert!(has_stream(&nats));
    assert!(ask(&nats, "").unwrap().contains(r#""jetstream":true"#));
    nats.stop().await.unwrap();
}

#[tokio::test]
async fn a_dropped_server_is_gone_with_its_folder() {
    let nats = Nats::start().await.unwrap();
    let (pid, folder) = (nats.pid(), PathBuf::from(nats.dir()));
    drop(nats);
    assert!(!is_alive(pid) && !folder.exists());
}

#[tokio::test]
async fn another_nats_on_a_fixed_port_is_not_taken_for_ours() {
    let first = Nats::start().await.unwrap();
    let outcome = Nats::builder().port(first.port()).start().await;
    assert!(
        matches!(outcome, Err(TestbedError::Local(LocalError::PortTaken { port })) if port == first.port())
    );
}

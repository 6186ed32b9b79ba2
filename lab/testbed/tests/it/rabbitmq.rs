//! One RabbitMQ server.

use std::{fs, path::PathBuf};

use testbed::RabbitMq;

use crate::support::{eventually, is_alive};

/// Process ids of the children of `pid`, by the name of their program.
fn children(pid: u32, name: &str) -> Vec<u32> {
    let output = std::process::Command::new("ps")
        .args(["-A", "-o", "pid=,ppid=,comm="])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let child = |line: &str| {
        let mut words = line.split_whitespace();
        let (child, parent) = (words.next()?, words.next()?);
        let is_one = parent.parse() == Ok(pid) && words.next()? == name;
        is_one.then(|| child.parse().unwrap())
    };
    text.lines().filter_map(child).collect()
}

/// One server for all of it, because each start takes seconds.
#[tokio::test]
async fn a_server_restarts_on_its_data_and_ends_with_its_port_mapper() {
    let mut server = RabbitMq::start().await.unwrap();
    let (url, pid, folder) = (server.url(), server.pid(), PathBuf::from(server.dir()));
    let node = || fs::read_to_string(folder.join("data/mnesia/cluster_nodes.config"));
    let nodes = node().unwrap();
    server.kill().await.unwrap();
    assert!(!is_alive(pid));
    server.restart().await.unwrap();
    assert_eq!(server.url(), url);
    assert_eq!(node().unwrap(), nodes);

    let pid = server.pid();
    let mappers = children(pid, "epmd");
    assert_eq!(mappers.len(), 1, "a port mapper of its own");
    drop(server);
    assert!(!is_alive(pid) && !folder.exists());
    eventually("the end of the port mapper", || !is_alive(mappers[0]));
}

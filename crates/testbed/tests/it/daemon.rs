//! A program of the caller's own.

use std::{process::Command, time::Duration};

use testbed::Daemon;

use crate::support::{eventually, is_alive};

fn counting() -> Command {
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "echo begins; trap 'echo ends; exit' TERM; while :; do sleep 0.05; done",
    ]);
    command
}

#[tokio::test]
async fn a_program_is_killed_paused_and_started_again_and_its_output_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut daemon = Daemon::start("counting", folder.path().join("log"), counting)
        .await
        .unwrap();
    let log = || std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
    eventually("its first line", || log() == "begins\n");
    let first = daemon.pid();
    daemon.pause().await.unwrap();
    daemon.resume().await.unwrap();
    daemon.kill().await.unwrap();
    assert!(daemon.has_ended() && !is_alive(first));
    daemon.restart().await.unwrap();
    assert!(daemon.pid() != first && !daemon.has_ended());
    eventually("its second line", || log() == "begins\nbegins\n");
    daemon.stop(Duration::from_secs(5)).await;
    assert_eq!(log(), "begins\nbegins\nends\n");
}

#[tokio::test]
async fn a_dropped_program_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start("counting", folder.path().join("log"), counting)
        .await
        .unwrap();
    let pid = daemon.pid();
    drop(daemon);
    assert!(!is_alive(pid));
}

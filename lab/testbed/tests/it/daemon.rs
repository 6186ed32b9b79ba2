//! Any program, run like a server.

use std::process::Command;

use testbed::{Daemon, timeout};

use crate::support::{eventually, is_alive};

fn looping() -> Command {
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "echo begins; trap 'echo ends; exit' TERM; while :; do sleep 0.05; done",
    ]);
    command
}

#[tokio::test]
async fn a_program_can_be_paused_killed_and_restarted_and_its_output_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut daemon = Daemon::start("looping", folder.path().join("log"), looping)
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
    daemon.stop(timeout()).await;
    assert_eq!(log(), "begins\nbegins\nends\n");
}

#[tokio::test]
async fn a_dropped_program_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start("looping", folder.path().join("log"), looping)
        .await
        .unwrap();
    let pid = daemon.pid();
    drop(daemon);
    assert!(!is_alive(pid));
}

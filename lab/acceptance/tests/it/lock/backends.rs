//! `--backend`: the same command on every backend of the lock.

use std::{
    fs,
    process::{Command, Output},
};

use testbed::{Postgres, Redis};
use testkit::eventually;

use super::test_env::{Holding, code, stockade};
use crate::process::{run, stderr, stdout};

fn lock_run(backend: &str, server: &str, options: &[&str], command: &[&str]) -> Command {
    let mut run = stockade();
    run.args([
        "lock",
        "run",
        "a lock",
        "--backend",
        backend,
        "--nodes",
        server,
    ])
    .args(options)
    .arg("--")
    .args(command);
    run
}

/// Such a run, from its start to its end.
fn locked_run(backend: &str, server: &str, options: &[&str], command: &[&str]) -> Output {
    run(&mut lock_run(backend, server, options, command))
}

/// Tokens rise, a wait that times out is reported, and the lock is free after its command.
async fn keeps_locks(backend: &str, server: &str) {
    let mut last = 0;
    for _ in 0..3 {
        let output = locked_run(
            backend,
            server,
            &[],
            &["sh", "-c", "echo $STOCKADE_LOCK_TOKEN; exit 7"],
        );
        assert_eq!(code(&output), 7, "{backend}: {}", stderr(&output));
        let token: i64 = stdout(&output).trim().parse().unwrap();
        assert!(token > last, "{backend}: {token} after {last}");
        last = token;
    }
    let folder = tempfile::tempdir().unwrap();
    let started = folder.path().join("started");
    let script = format!("touch '{}'; exec sleep 60", started.display());
    let holder = Holding::start(&mut lock_run(backend, server, &[], &["sh", "-c", &script]));
    eventually("the holder runs", async || fs::exists(&started).unwrap()).await;
    let output = locked_run(backend, server, &["--wait", "0.3"], &["true"]);
    assert_eq!(code(&output), 75, "{backend}: {}", stderr(&output));
    holder.signal(nix::sys::signal::Signal::SIGTERM);
    let output = locked_run(backend, server, &["--wait", "1h"], &["true"]);
    assert_eq!(code(&output), 0, "{backend}: {}", stderr(&output));
}

#[tokio::test]
async fn one_redis_keeps_locks() {
    let server = Redis::start().await.unwrap();
    keeps_locks("redis", &server.url()).await;
}

#[tokio::test]
async fn databases_keep_locks() {
    let folder = tempfile::tempdir().unwrap();
    keeps_locks(
        "sqlite",
        &format!("sqlite://{}/locks.db?mode=rwc", folder.path().display()),
    )
    .await;
    let postgres = Postgres::start().await.unwrap();
    keeps_locks("postgres", &postgres.url("postgres")).await;
}

#[cfg(feature = "mysql")]
#[tokio::test]
async fn mariadb_keeps_locks() {
    let server = testbed::MariaDb::start().await.unwrap();
    keeps_locks("mysql", &server.create_database("locks").await.unwrap()).await;
}

#[cfg(feature = "zookeeper")]
#[tokio::test]
async fn zookeeper_keeps_locks() {
    let server = testbed::ZooKeeper::start().await.unwrap();
    keeps_locks("zookeeper", &format!("zookeeper://{}", server.url())).await;
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn etcd_keeps_locks() {
    let server = testbed::Etcd::start().await.unwrap();
    keeps_locks("etcd", &server.url()).await;
}

#[test]
fn a_backend_that_is_not_compiled_in_is_refused_with_the_feature_to_enable() {
    for (backend, server) in [
        #[cfg(not(feature = "etcd"))]
        ("etcd", "http://127.0.0.1:1"),
        #[cfg(not(feature = "mysql"))]
        ("mysql", "mysql://127.0.0.1:1/locks"),
        #[cfg(not(feature = "zookeeper"))]
        ("zookeeper", "zookeeper://127.0.0.1:1"),
        #[cfg(not(feature = "consul"))]
        ("consul", "http://127.0.0.1:1"),
    ] as [(&str, &str); _]
    {
        let output = locked_run(backend, server, &[], &["true"]);
        assert_eq!(code(&output), 2);
        assert!(
            stderr(&output).contains(&format!("--features {backend}")),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn what_a_backend_cannot_do_is_refused() {
    let nowhere = "redis://127.0.0.1:1";
    let table: &[(&str, &str, &[&str], &[&str])] = &[
        ("redis", nowhere, &["--fair"], &["--fair", "redis"]),
        ("redis", nowhere, &["--shared"], &["--shared", "redis"]),
        (
            "redis",
            "redis://127.0.0.1:1,redis://127.0.0.1:2",
            &[],
            &["--nodes", "one server", "found 2"],
        ),
        ("postgres", nowhere, &[], &["--nodes", "postgres://"]),
        (
            "zookeeper",
            "127.0.0.1:2181",
            &[],
            &["--nodes", "zookeeper://"],
        ),
        ("redis", nowhere, &["--lease", "1ms"], &["--lease", "20 ms"]),
    ];
    for (backend, server, options, expected) in table {
        let output = locked_run(backend, server, options, &["true"]);
        assert_eq!(code(&output), 2, "{backend}: {}", stderr(&output));
        assert!(
            expected
                .iter()
                .all(|expected| stderr(&output).contains(expected)),
            "{backend}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn a_server_that_is_away_is_unavailable() {
    let dead = [
        ("redis", "redis://127.0.0.1:1"),
        ("postgres", "postgres://postgres:pass-word@127.0.0.1:1/x"),
        #[cfg(feature = "mysql")]
        ("mysql", "mysql://root:pass-word@127.0.0.1:1/x"),
        #[cfg(feature = "zookeeper")]
        ("zookeeper", "zookeeper://127.0.0.1:1"),
        #[cfg(feature = "consul")]
        ("consul", "http://127.0.0.1:1"),
    ];
    for (backend, server) in dead {
        let output = locked_run(backend, server, &[], &["true"]);
        assert_eq!(code(&output), 69, "{backend}: {}", stderr(&output));
        assert!(
            !stderr(&output).contains("pass-word"),
            "{backend}: {}",
            stderr(&output)
        );
        let output = locked_run(backend, server, &["--wait", "0.2"], &["true"]);
        assert_eq!(code(&output), 75, "{backend}: {}", stderr(&output));
    }
}

//! One Redis server.

use std::{
    io::{self, ErrorKind},
    net::TcpListener,
    time::Duration,
};

use ::redis::{InfoDict, RedisError, cmd};
use testbed::{AppendFsync, LocalError, Redis, TestbedError, free_port, redis::RedisKind};

use crate::{
    contract::Probe,
    support::{ask, ask_within, keys, script, set},
};

impl Probe for RedisKind {
    const WRITES: u32 = 100;
    const SILENCE_IS: ErrorKind = ErrorKind::TimedOut;
    const WRONG_SETTING: (&'static str, &'static str) = ("no-such-setting", "1");
    const COMPLAINT: &'static str = "no-such-setting";

    fn url(server: &Redis) -> String {
        server.url()
    }

    async fn write(server: &Redis) {
        for n in 0..Self::WRITES {
            let () = ask(&server.url(), cmd("SET").arg(n).arg(n)).await.unwrap();
        }
    }

    async fn written(server: &Redis, timeout: Duration) -> io::Result<u32> {
        let failed = |error: RedisError| {
            if error.is_timeout() {
                io::Error::new(ErrorKind::TimedOut, error)
            } else {
                io::Error::other(error)
            }
        };
        let url = server.url();
        let keys = ask_within(timeout, &url, &cmd("DBSIZE")).await;
        let keys: u32 = keys.map_err(failed)?;
        if keys == 0 {
            return Ok(0);
        }
        // All keys, and with the values that were written.
        let names: Vec<u32> = (0..keys).collect();
        let values = ask_within(timeout, &url, cmd("MGET").arg(&names)).await;
        let values: Vec<Option<u32>> = values.map_err(failed)?;
        let kept = names.iter().zip(values);
        let kept = kept.filter(|(name, value)| *value == Some(**name));
        Ok(kept.count().try_into().unwrap())
    }
}

async fn setting(redis: &Redis, key: &str) -> String {
    let found: (String, String) = ask(&redis.url(), cmd("CONFIG").arg("GET").arg(key))
        .await
        .unwrap();
    found.1
}

#[tokio::test]
async fn the_server_that_answers_is_our_child() {
    let redis = Redis::start().await.unwrap();
    let info: InfoDict = ask(&redis.url(), cmd("INFO").arg("server")).await.unwrap();
    assert_eq!(info.get::<u32>("process_id"), Some(redis.pid()));
    assert_eq!(info.get::<u16>("tcp_port"), Some(redis.port()));
}

#[tokio::test]
async fn a_server_without_append_only_file_loses_its_data_in_a_restart() {
    let mut redis = Redis::builder()
        .appendfsync(AppendFsync::No)
        .start()
        .await
        .unwrap();
    set(&redis, "a").await;
    redis.restart().await.unwrap();
    assert_eq!(keys(&redis).await, 0);
}

#[tokio::test]
async fn restart_waits_until_the_data_is_loaded() {
    let mut redis = Redis::builder()
        .config("key-load-delay", "20")
        .config("loading-process-events-interval-bytes", "1024")
        .start()
        .await
        .unwrap();
    let fill = "for i = 1, 20000 do redis.call('SET', i, i) end";
    let () = ask(&redis.url(), cmd("EVAL").arg(fill).arg(0))
        .await
        .unwrap();
    redis.restart().await.unwrap();
    assert_eq!(keys(&redis).await, 20_000);
}

#[tokio::test]
async fn the_defaults_are_those_that_stock_needs() {
    let redis = Redis::start().await.unwrap();
    for (key, value) in [
        ("appendonly", "yes"),
        ("appendfsync", "always"),
        ("maxmemory-policy", "noeviction"),
        ("save", ""),
        ("bind", "127.0.0.1"),
    ] {
        assert_eq!(setting(&redis, key).await, value, "{key}");
    }
}

#[tokio::test]
async fn a_setting_replaces_the_default() {
    let redis = Redis::builder()
        .config("save", "900 1")
        .config("maxmemory-policy", "allkeys-lru")
        .start()
        .await
        .unwrap();
    assert_eq!(setting(&redis, "save").await, "900 1");
    assert_eq!(setting(&redis, "maxmemory-policy").await, "allkeys-lru");
}

#[tokio::test]
async fn a_fixed_port_that_is_taken_is_an_error() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let outcome = Redis::builder().port(port).start().await;
    assert!(
        matches!(outcome, Err(TestbedError::Local(LocalError::PortTaken { port: p })) if p == port)
    );
}

#[tokio::test]
async fn a_fixed_port_is_used() {
    let port = free_port().await;
    assert_eq!(
        Redis::builder().port(port).start().await.unwrap().url(),
        format!("redis://127.0.0.1:{port}")
    );
}

#[tokio::test]
async fn two_servers_never_share_a_kept_folder() {
    let folder = tempfile::tempdir().unwrap();
    let _first = Redis::builder().dir(folder.path()).start().await.unwrap();
    let second = Redis::builder().dir(folder.path()).start().await;
    assert!(matches!(
        second,
        Err(TestbedError::Local(LocalError::FolderInUse { .. }))
    ));
}

#[tokio::test]
async fn a_paused_server_can_be_stopped_and_killed() {
    let mut killed = Redis::start().await.unwrap();
    killed.pause().await.unwrap();
    killed.kill().await.unwrap();
    killed.restart().await.unwrap();
    killed.pause().await.unwrap();
    killed.stop().await.unwrap();
}

#[tokio::test]
async fn a_missing_program_is_named_with_a_hint() {
    let error = Redis::builder()
        .program("/nowhere/redis-server")
        .start()
        .await
        .err()
        .unwrap();
    assert!(matches!(
        error,
        TestbedError::Local(LocalError::NotInstalled { .. })
    ));
    assert!(
        error
            .to_string()
            .contains("/nowhere/redis-server is not installed")
    );
    assert!(error.to_string().contains("apt-get install redis-server"));
}

#[tokio::test]
async fn the_error_of_a_start_quotes_only_the_log_of_that_start() {
    let folder = tempfile::tempdir().unwrap();
    let program = script(
        folder.path(),
        "#!/bin/sh\nif [ -e once ]; then echo second; else touch once; echo first; fi\n",
    );
    let kept = folder.path().join("data");
    let builder = Redis::builder().program(program).dir(kept);
    assert!(
        builder
            .clone()
            .start()
            .await
            .err()
            .unwrap()
            .to_string()
            .ends_with("first")
    );
    assert!(
        builder
            .start()
            .await
            .err()
            .unwrap()
            .to_string()
            .ends_with("log:\nsecond")
    );
}

#[tokio::test]
async fn a_server_without_free_memory_refuses_writes_until_memory_is_restored() {
    let redis = Redis::start().await.unwrap();
    set(&redis, "a").await;
    redis.run_out_of_memory().await.unwrap();
    let refused = ask::<()>(&redis.url(), cmd("SET").arg("a").arg(2))
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("OOM"), "{refused}");
    assert_eq!(
        ask::<u32>(&redis.url(), cmd("GET").arg("a")).await.unwrap(),
        1
    );
    redis.get_memory_back().await.unwrap();
    let () = ask(&redis.url(), cmd("SET").arg("a").arg(3)).await.unwrap();
}

/// Tests also start servers in spawned tasks. The test is that this compiles.
#[tokio::test]
async fn a_start_can_be_spawned() {
    let redis = tokio::spawn(Redis::start()).await.unwrap().unwrap();
    tokio::spawn(redis.stop()).await.unwrap().unwrap();
}

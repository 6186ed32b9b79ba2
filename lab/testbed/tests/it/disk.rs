//! A full disk. Only root on Linux can mount one; for other users the tests print that they were
//! skipped, and pass.

use ::redis::cmd;
use testbed::{Disk, Postgres, Redis, TestbedError, eventually, eventually_some};

use crate::support::ask;

async fn disk(megabytes: u32) -> Option<Disk> {
    match Disk::mount(megabytes).await {
        Err(error @ TestbedError::Unsupported { .. }) => {
            testbed::skipped(&error.to_string());
            None
        }
        // A container's root may not mount.
        Err(error @ TestbedError::Program { .. }) => {
            testbed::skipped(&error.to_string());
            None
        }
        mounted => Some(mounted.unwrap()),
    }
}

#[tokio::test]
async fn a_full_disk_accepts_no_write_until_space_is_freed() {
    let Some(disk) = disk(4).await else { return };
    let file = disk.path().join("a");
    assert!(disk.fill().unwrap() > 3 << 20);
    assert_eq!(
        std::fs::write(&file, vec![1; 8192]).unwrap_err().kind(),
        std::io::ErrorKind::StorageFull
    );
    disk.make_room().unwrap();
    std::fs::write(&file, vec![1; 8192]).unwrap();
    disk.make_room().expect("freeing space twice is harmless");
}

#[tokio::test]
async fn a_dropped_disk_is_gone() {
    let Some(disk) = disk(1).await else { return };
    let path = disk.path();
    drop(disk);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_redis_on_a_full_disk_refuses_writes_until_space_is_freed() {
    let Some(disk) = disk(8).await else { return };
    let redis = Redis::builder()
        .dir(disk.path().join("redis"))
        .appendfsync(testbed::AppendFsync::EverySecond)
        .start()
        .await
        .unwrap();
    disk.fill().unwrap();
    let long = "x".repeat(10_000);
    // Redis acknowledges writes that do not fit until it has noticed, at its next flush.
    let refused = eventually_some("a refused write", async || {
        let write = ask::<()>(&redis.url(), cmd("SET").arg("a").arg(&long)).await;
        write.err()
    })
    .await;
    assert!(refused.to_string().contains("MISCONF"), "{refused}");
    disk.make_room().unwrap();
    eventually("an accepted write", async || {
        ask::<()>(&redis.url(), cmd("SET").arg("b").arg(1))
            .await
            .is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_postgres_on_a_full_disk_refuses_large_writes_and_recovers() {
    let Some(disk) = disk(160).await else { return };
    let mut postgres = Postgres::builder()
        .dir(disk.path().join("postgres"))
        .start()
        .await
        .unwrap();
    let url = postgres.create_database("full").await.unwrap();
    psql(&url, "CREATE TABLE a (b text)").unwrap();
    disk.fill().unwrap();
    let fill = "INSERT INTO a SELECT repeat(md5(n::text), 100) FROM generate_series(1, 20000) n";
    let refused = psql(&url, fill).unwrap_err();
    assert!(
        refused.contains("No space left") || refused.contains("connection"),
        "{refused}"
    );
    disk.make_room().unwrap();
    // Without space for its write-ahead log it ends, and needs a restart.
    if psql(&url, "SELECT 1").is_err() {
        postgres.restart().await.unwrap();
    }
    psql(&url, "INSERT INTO a VALUES ('b')").unwrap();
}

fn psql(url: &str, statement: &str) -> Result<(), String> {
    let output = std::process::Command::new("psql")
        .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", statement, url])
        .output()
        .unwrap();
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

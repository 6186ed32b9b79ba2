//! A server lives exactly as long as its handle, and at most as long as our process.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use ::redis::cmd;
use testbed::{Postgres, Redis};

use crate::support::{ask, eventually, is_alive, reachable_folder};

/// Variable with the folder for the servers of the child process.
const FOLDER: &str = "TESTBED_FOLDER";

/// The kernel sends the parent-death signal when the parent thread ends. Here the thread that
/// requested the server ends first.
#[test]
fn a_server_outlives_the_thread_and_the_runtime_that_started_it() {
    let start = || {
        tokio::runtime::Runtime::new()
            .unwrap()
            .block_on(Redis::start())
            .unwrap()
    };
    let redis = std::thread::spawn(start).join().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let pong: String = tokio::runtime::Runtime::new()
        .unwrap()
        .block_on(ask(&redis.url(), &cmd("PING")))
        .unwrap();
    assert_eq!(pong, "PONG");
}

#[test]
#[cfg(target_os = "linux")]
fn no_server_outlives_a_killed_process() {
    let folder = reachable_folder();
    let servers = killed_with_servers_in(folder.path());
    eventually("the end of the servers", || {
        !servers.iter().any(|pid| is_alive(*pid))
    });
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn kept_folders_are_usable_after_their_process_was_killed() {
    let folder = reachable_folder();
    let servers = killed_with_servers_in(folder.path());
    eventually("the end of the servers", || {
        !servers.iter().any(|pid| is_alive(*pid))
    });
    let (redis, _postgres) = servers_in(folder.path()).await;
    assert_eq!(ask::<u32>(&redis.url(), &cmd("DBSIZE")).await.unwrap(), 1);
}

/// Not a test: the body of the process that the tests above kill.
#[tokio::test]
#[ignore = "runs only as a child of another test"]
async fn starts_servers_and_waits_to_be_killed() {
    let folder = std::env::var(FOLDER).expect("a folder for the servers");
    let (redis, postgres) = servers_in(Path::new(&folder)).await;
    let () = ask(&redis.url(), cmd("SET").arg("a").arg(1)).await.unwrap();
    eprintln!("servers {} {}", redis.pid(), postgres.pid());
    std::future::pending::<()>().await;
}

async fn servers_in(folder: &Path) -> (Redis, Postgres) {
    let redis = Redis::builder()
        .dir(folder.join("redis"))
        .start()
        .await
        .unwrap();
    (
        redis,
        Postgres::builder()
            .dir(folder.join("postgres"))
            .start()
            .await
            .unwrap(),
    )
}

/// Runs a process that starts servers, kills it, and returns the process ids of the servers.
fn killed_with_servers_in(folder: &Path) -> Vec<u32> {
    let mut process = this_program_again("starts_servers_and_waits_to_be_killed", folder);
    let servers = servers_of(&mut process);
    assert!(servers.iter().all(|pid| is_alive(*pid)));
    process.kill().unwrap();
    process.wait().unwrap();
    servers
}

fn this_program_again(test: &str, folder: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            &format!("lifetime::{test}"),
            "--ignored",
            "--nocapture",
        ])
        .env(FOLDER, folder);
    command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn servers_of(process: &mut Child) -> Vec<u32> {
    let lines = BufReader::new(process.stderr.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let line = lines
        .filter_map(|line| line.strip_prefix("servers ").map(str::to_owned))
        .next()
        .expect("a line with the servers");
    line.split(' ').map(|pid| pid.parse().unwrap()).collect()
}

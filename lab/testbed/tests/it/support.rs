//! Requests to servers and to the system, without the testbed's own code.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    time::{Duration, Instant},
};

use ::redis::{AsyncConnectionConfig, Cmd, FromRedisValue, RedisResult, cmd};
use testbed::{Redis, timeout};

/// How long to wait for a server that is paused, to which no answer comes. Shorter than any pause.
pub const SILENCE: Duration = Duration::from_millis(500);

/// Runs one command on a new connection.
pub async fn ask<T: FromRedisValue>(url: &str, command: &Cmd) -> RedisResult<T> {
    ask_within(timeout(), url, command).await
}

/// The same with a time-out, for servers that are silent.
pub async fn ask_within<T: FromRedisValue>(
    timeout: Duration,
    url: &str,
    command: &Cmd,
) -> RedisResult<T> {
    let timeout = Some(timeout);
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(timeout)
        .set_response_timeout(timeout);
    let mut connection = ::redis::Client::open(url)?
        .get_multiplexed_async_connection_with_config(&config)
        .await?;
    command.query_async(&mut connection).await
}

/// Sets a key to 1.
pub async fn set(server: &Redis, key: &str) {
    let () = ask(&server.url(), cmd("SET").arg(key).arg(1))
        .await
        .unwrap();
}

/// Whether the server has the key.
pub async fn has(server: &Redis, key: &str) -> bool {
    ask(&server.url(), cmd("EXISTS").arg(key)).await.unwrap()
}

/// Number of keys of the server.
pub async fn keys(server: &Redis) -> u32 {
    ask(&server.url(), &cmd("DBSIZE")).await.unwrap()
}

/// Sends a request and returns the response until the server closes the connection. The time-out is
/// that of each read.
pub fn exchange_within(timeout: Duration, port: u16, request: &[u8]) -> io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(timeout))?;
    stream.write_all(request)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Whether the process exists and is not a zombie.
pub fn is_alive(pid: u32) -> bool {
    let output = std::process::Command::new("ps")
        .args(["-o", "state=", "-p", &pid.to_string()])
        .output()
        .unwrap();
    let state = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    !state.is_empty() && !state.starts_with('Z')
}

/// [`testbed::eventually`] for tests without a runtime.
pub fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + timeout();
    while !happened() {
        // clock: a fault is that it never happens.
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// An executable file with this text.
pub fn script(folder: &Path, text: &str) -> std::path::PathBuf {
    let path = folder.join("program");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// A temporary folder that other users may enter. If we are root, the parent of a kept folder must
/// be like that.
pub fn reachable_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

//! State of a process, as the system reports it.
//!
//! A zombie counts as dead. It still has a pid and can be signalled, so `kill(pid, 0)` reports it
//! as alive. If process 1 is slow to reap orphans, it stays in that state for a long time.

/// Whether one of the processes exists and is not a zombie.
pub(crate) fn any_alive(pids: &[u32]) -> bool {
    !pids.is_empty()
        && table()
            .iter()
            .any(|row| pids.contains(&row.pid) && !matches!(row.state, 'Z' | 'X'))
}

/// Current children of the process.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    table()
        .iter()
        .filter(|row| row.parent == parent)
        .map(|row| row.pid)
        .collect()
}

/// Whether our child is stopped, with all its threads.
///
/// Waits for stops only and leaves the state in place: the call neither reaps the child nor changes
/// the result of the next call.
#[cfg(target_os = "linux")]
pub(crate) fn is_stopped(pid: u32) -> bool {
    use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
    let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let id = Id::Pid(nix::unistd::Pid::from_raw(pid.cast_signed()));
    matches!(waitid(id, flags), Ok(WaitStatus::Stopped(..)))
}

/// Whether the process is stopped.
#[cfg(not(target_os = "linux"))]
pub(crate) fn is_stopped(pid: u32) -> bool {
    table().iter().any(|row| row.pid == pid && row.state == 'T')
}

struct Row {
    pid: u32,
    parent: u32,
    state: char,
}

/// All processes that we can see.
#[cfg(target_os = "linux")]
fn table() -> Vec<Row> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| row(&std::fs::read_to_string(entry.path().join("stat")).ok()?))
        .collect()
}

/// `123 (name, which may contain any character) S 1 ...`
#[cfg(target_os = "linux")]
fn row(stat: &str) -> Option<Row> {
    let (front, back) = stat.rsplit_once(')')?;
    let mut fields = back.split_whitespace();
    Some(Row {
        pid: front.split_once(' ')?.0.parse().ok()?,
        state: fields.next()?.chars().next()?,
        parent: fields.next()?.parse().ok()?,
    })
}

/// All processes that we can see.
#[cfg(not(target_os = "linux"))]
fn table() -> Vec<Row> {
    let output = std::process::Command::new("ps")
        .args(["-A", "-o", "pid=,ppid=,state="])
        .output();
    let text = output
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    text.lines().filter_map(row).collect()
}

/// `123 1 S+`
#[cfg(not(target_os = "linux"))]
fn row(line: &str) -> Option<Row> {
    let mut fields = line.split_whitespace();
    Some(Row {
        pid: fields.next()?.parse().ok()?,
        parent: fields.next()?.parse().ok()?,
        state: fields.next()?.chars().next()?,
    })
}

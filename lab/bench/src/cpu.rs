//! Processor time of processes, as the kernel counts it. Only Linux reports it, in `/proc`.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};

/// The kernel's unit in `/proc`, whatever its own clock does (`man 5 proc`: `sysconf(_SC_CLK_TCK)`,
/// 100 on every Linux that there is to run this on).
const TICK_US: f64 = 10_000.0;

/// Whether this system reports processor time.
pub fn is_available() -> bool {
    Path::new("/proc/self/stat").exists()
}

/// Microseconds that a process and its children have used: PostgreSQL has one for each connection.
/// Children that have ended count as well, so that the sum never falls.
pub fn used_us(pid: u32) -> Result<f64> {
    let mut ticks = 0;
    let mut found = false;
    for entry in fs::read_dir("/proc").context("/proc")? {
        // The process may have ended meanwhile.
        let Ok(text) = fs::read_to_string(entry?.path().join("stat")) else {
            continue;
        };
        if let Some(stat) = Stat::read(&text).filter(|stat| stat.pid == pid || stat.parent == pid) {
            found |= stat.pid == pid;
            ticks += stat.ticks;
        }
    }
    ensure!(found, "process {pid} has ended");
    Ok(ticks as f64 * TICK_US)
}

#[derive(Debug, PartialEq)]
struct Stat {
    pid: u32,
    parent: u32,
    /// Those of the process and of its children that it has waited for.
    ticks: u64,
}

impl Stat {
    /// `12 (a name) S 1 ...`: the name may contain parentheses and spaces.
    fn read(text: &str) -> Option<Self> {
        let (head, rest) = text.rsplit_once(')')?;
        let (pid, _) = head.split_once(' ')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self {
            pid: pid.parse().ok()?,
            parent: u32::try_from(number(1)?).ok()?,
            ticks: number(11)? + number(12)? + number(13)? + number(14)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Stat, is_available, used_us};

    #[test]
    fn a_process_name_may_contain_spaces_and_parentheses() {
        let text = "42 (a) b (c)) S 7 42 42 0 -1 4194560 100 0 0 0 12 30 5 6 20 0 1 0 1 1 1";
        assert_eq!(
            Stat::read(text),
            Some(Stat {
                pid: 42,
                parent: 7,
                ticks: 53
            })
        );
        assert_eq!(Stat::read("nothing"), None);
    }

    #[test]
    fn used_time_rises_with_work() {
        if is_available() {
            let before = used_us(std::process::id()).unwrap();
            // Works until the counter rises, however busy the machine is.
            while used_us(std::process::id()).unwrap() == before {
                std::hint::black_box((0..10_000_u64).sum::<u64>());
            }
            assert!(used_us(u32::MAX).is_err());
        }
    }
}

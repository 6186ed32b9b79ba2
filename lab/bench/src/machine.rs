//! The machine that produced the figures, with what is installed on it.

use std::{
    fmt,
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    time::Instant,
};

use jiff::Timestamp;
use reporting::{
    machine::{self, first_line},
    statistics::median,
};
use serde::Serialize;

/// Number of flushes that are timed.
const SYNCS: usize = 200;

/// Description of the machine. Fields that cannot be determined are left out.
#[derive(Debug, Default, Serialize)]
pub struct Machine {
    #[serde(flatten)]
    bare: machine::Machine,
    redis: Option<String>,
    postgres: Option<String>,
    rustc: Option<String>,
    /// Median time of a flushed 4 KiB write to the disk that the servers use.
    fdatasync_ms: Option<f64>,
    /// Load average of the last minute before the run.
    load: Option<f64>,
    /// Measured commit.
    commit: Option<String>,
    date: String,
}

impl Machine {
    /// Describes this machine.
    pub async fn detect() -> Self {
        Self {
            bare: machine::Machine::detect(),
            redis: first_line("redis-server", &["--version"])
                .map(|line| redis_version(&line).unwrap_or(line)),
            postgres: postgres()
                .iter()
                .find_map(|program| first_line(program, &["--version"])),
            rustc: first_line("rustc", &["--version"])
                .or_else(|| first_line(cargo_home().join("bin/rustc"), &["--version"])),
            fdatasync_ms: tokio::task::spawn_blocking(|| fdatasync_ms(&std::env::temp_dir()).ok())
                .await
                .ok()
                .flatten(),
            load: fs::read_to_string("/proc/loadavg")
                .ok()
                .and_then(|text| text.split(' ').next()?.parse().ok()),
            commit: commit(),
            date: Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = vec![self.bare.to_string()];
        parts.extend(
            self.redis
                .as_ref()
                .map(|version| format!("Redis {version}")),
        );
        parts.extend(self.postgres.clone());
        parts.extend(self.rustc.clone());
        parts.extend(self.fdatasync_ms.map(|ms| format!("fdatasync {ms:.2} ms")));
        parts.extend(self.load.map(|load| format!("load {load}")));
        parts.extend(
            self.commit
                .as_ref()
                .map(|commit| format!("commit {commit}")),
        );
        parts.push(self.date.clone());
        f.write_str(&parts.join(", "))
    }
}

/// `Redis server v=7.0.15 sha=...`
fn redis_version(line: &str) -> Option<String> {
    line.split(' ')
        .find_map(|word| word.strip_prefix("v="))
        .map(str::to_owned)
}

/// Possible paths of PostgreSQL's server: PATH, then Debian's folders, newest first.
fn postgres() -> Vec<PathBuf> {
    let version = |path: &PathBuf| {
        path.file_name()
            .and_then(|name| name.to_str()?.parse::<u32>().ok())
            .unwrap_or_default()
    };
    let mut versions: Vec<_> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    versions.sort_by_key(|path| std::cmp::Reverse(version(path)));
    std::iter::once(PathBuf::from("postgres"))
        .chain(versions.into_iter().map(|path| path.join("bin/postgres")))
        .collect()
}

fn cargo_home() -> PathBuf {
    let home = || std::env::home_dir().unwrap_or_default().join(".cargo");
    std::env::var_os("CARGO_HOME").map_or_else(home, PathBuf::from)
}

/// Commit, with a `+` if the work tree has changes.
fn commit() -> Option<String> {
    let commit = first_line("git", &["rev-parse", "--short=12", "HEAD"])?;
    let changed = first_line("git", &["status", "--porcelain", "--untracked-files=no"]).is_some();
    Some(if changed {
        format!("{commit}+")
    } else {
        commit
    })
}

fn fdatasync_ms(folder: &Path) -> std::io::Result<f64> {
    let mut file: File = tempfile::tempfile_in(folder)?;
    let mut took = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        file.write_all(&[1; 4096])?;
        let started = Instant::now();
        file.sync_data()?;
        took.push(started.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(median(&took))
}

#[cfg(test)]
mod tests {
    use super::{Machine, redis_version};

    #[tokio::test]
    async fn the_description_has_cores_disk_and_date() {
        let machine = Machine::detect().await;
        assert!(machine.fdatasync_ms.is_some_and(|ms| ms > 0.0));
        let text = machine.to_string();
        assert!(
            text.contains(" core") && text.contains("fdatasync") && text.contains("UTC"),
            "{text}"
        );
    }

    #[test]
    fn the_version_of_redis_is_parsed_from_its_output() {
        assert_eq!(
            redis_version("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64")
                .as_deref(),
            Some("7.0.15")
        );
    }
}

//! The machine that produced the figures.

use std::{
    fmt, fs,
    path::Path,
    process::{Command, Stdio},
};

use serde::Serialize;

/// Description of the machine. Fields that cannot be determined are left out.
#[derive(Debug, Default, Serialize)]
pub struct Machine {
    cores: usize,
    cpu: Option<String>,
    memory_mb: Option<u64>,
    kernel: Option<String>,
}

impl Machine {
    /// Describes this machine.
    pub fn detect() -> Self {
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: cpu(),
            memory_mb: memory_mb(),
            kernel: first_line("uname", &["-sr"]),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.cores == 1 { "core" } else { "cores" };
        let mut parts = vec![format!("{} {plural}", self.cores)];
        parts.extend(self.cpu.clone());
        parts.extend(
            self.memory_mb
                .map(|mb| format!("{:.1} GB", mb as f64 / 1024.0)),
        );
        parts.extend(self.kernel.clone());
        f.write_str(&parts.join(", "))
    }
}

/// The first line that a program prints, if it is installed and succeeds.
pub fn first_line(program: impl AsRef<Path>, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program.as_ref())
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout)
        .ok()
        .filter(|_| output.status.success())?;
    text.lines()
        .next()
        .map(|line| line.trim().to_owned())
        .filter(|line| !line.is_empty())
}

fn cpu() -> Option<String> {
    let linux = || field("/proc/cpuinfo", "model name");
    linux().or_else(|| first_line("sysctl", &["-n", "machdep.cpu.brand_string"]))
}

fn memory_mb() -> Option<u64> {
    let linux = || {
        field("/proc/meminfo", "MemTotal")?
            .trim_end_matches(" kB")
            .parse::<u64>()
            .ok()
            .map(|kb| kb / 1024)
    };
    linux().or_else(|| {
        first_line("sysctl", &["-n", "hw.memsize"])?
            .parse::<u64>()
            .ok()
            .map(|bytes| bytes / 1024 / 1024)
    })
}

/// Value after the first `name :` of a file.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let (_, value) = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)?;
    Some(value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::Machine;

    #[test]
    fn the_description_has_the_cores() {
        let machine = Machine::detect().to_string();
        assert!(machine.contains(" core"), "{machine}");
    }
}

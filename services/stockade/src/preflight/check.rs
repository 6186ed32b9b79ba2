//! The checks that were made, and how they are printed.

use anyhow::Result;
use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};
use serde::Serialize;

/// What came of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    Ok,
    Warn,
    Fail,
}

impl Status {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
        }
    }
}

#[derive(Debug, Serialize)]
struct Check {
    /// The server, or the part of the system.
    part: String,
    check: &'static str,
    status: Status,
    found: String,
    /// What to do. Empty if the check is ok.
    remedy: String,
}

/// All checks, in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct Checks(Vec<Check>);

impl Checks {
    pub(super) fn add(
        &mut self,
        part: &str,
        check: &'static str,
        status: Status,
        found: impl Into<String>,
        remedy: &str,
    ) {
        let remedy = if status == Status::Ok { "" } else { remedy };
        self.0.push(Check {
            part: part.to_owned(),
            check,
            status,
            found: found.into(),
            remedy: remedy.to_owned(),
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.count(Status::Fail) > 0
    }

    fn count(&self, status: Status) -> usize {
        self.0.iter().filter(|check| check.status == status).count()
    }

    pub(super) fn as_json(&self) -> Result<String> {
        let value = serde_json::json!({
            "ok": !self.has_failed(),
            "failures": self.count(Status::Fail),
            "warnings": self.count(Status::Warn),
            "checks": self.0,
        });
        Ok(serde_json::to_string_pretty(&value)?)
    }

    pub(super) fn as_table(&self) -> String {
        let mut table = Table::new();
        table
            .load_style(UTF8_FULL_CONDENSED)
            .set_header(["part", "check", "status", "found", "remedy"]);
        for check in &self.0 {
            table.add_row([
                &*check.part,
                check.check,
                check.status.as_str(),
                &check.found,
                &check.remedy,
            ]);
        }
        let (failures, warnings) = (self.count(Status::Fail), self.count(Status::Warn));
        format!(
            "{table}\n{} checks: {failures} failed, {warnings} warnings",
            self.0.len()
        )
    }
}

/// Differences from which orders are late, and from which no hold ends.
const CLOCK_WARN_MS: i64 = 250;
const CLOCK_FAIL_MS: i64 = 5_000;

impl Checks {
    /// A server's clock against that of this machine.
    pub(super) fn add_clock(&mut self, part: &str, difference_ms: Option<i64>) {
        let (status, found) = match difference_ms {
            None => (Status::Warn, "unknown".to_owned()),
            Some(ms) => (
                match ms.abs() {
                    CLOCK_FAIL_MS.. => Status::Fail,
                    CLOCK_WARN_MS.. => Status::Warn,
                    _ => Status::Ok,
                },
                format!("{ms:+} ms"),
            ),
        };
        let remedy =
            "synchronize its clock with this machine's: no hold ends while they differ by 5 s";
        self.add(part, "clock", status, found, remedy);
    }
}

#[cfg(test)]
mod tests {
    use super::{Checks, Status};

    #[test]
    fn a_failure_counts_and_a_warning_does_not() {
        let mut checks = Checks::default();
        checks.add("redis", "a", Status::Ok, "1", "do");
        checks.add("redis", "b", Status::Warn, "2", "do");
        assert!(!checks.has_failed());
        checks.add_clock("redis", Some(-6_000));
        checks.add_clock("redis", Some(300));
        checks.add_clock("redis", Some(-20));
        assert!(checks.has_failed());
        let table = checks.as_table();
        assert!(table.ends_with("5 checks: 1 failed, 2 warnings"), "{table}");
        let json: serde_json::Value = serde_json::from_str(&checks.as_json().unwrap()).unwrap();
        assert_eq!(json["checks"][0]["remedy"], "");
        assert_eq!(json["checks"][2]["status"], "fail");
    }
}

//! Runs a test with one safety check disabled, to prove that the check is necessary.
//!
//! The checks and their switch are [`domain::SafetyCheck`]. This crate enables the switch, so only
//! dev-dependencies may depend on it. `docs/safety.md` lists each check with the test that fails
//! without it.

use std::process::Command;

use domain::SafetyCheck;

/// Runs a test of the calling program twice, each time in a new process: unchanged, when it must
/// pass, and with the check disabled, when it must fail.
pub fn assert_needed_by(check: SafetyCheck, test: &str) {
    let (passed, output) = run(test, None);
    assert!(
        passed && output.contains("1 passed"),
        "{test} must pass with every check enabled:\n{output}"
    );
    let (passed, output) = run(test, Some(check));
    assert!(
        !passed && output.contains("1 failed"),
        "{test} must fail without {}:\n{output}",
        check.as_str()
    );
}

fn run(test: &str, without: Option<SafetyCheck>) -> (bool, String) {
    let program = std::env::current_exe().expect("a test can find its own program");
    let mut command = Command::new(program);
    command
        .args(["--exact", test, "--nocapture"])
        .env_remove(SafetyCheck::WITHOUT);
    if let Some(check) = without {
        command.env(SafetyCheck::WITHOUT, check.as_str());
    }
    let output = command
        .output()
        .expect("the test program can be started again");
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

#[cfg(test)]
mod tests {
    use domain::SafetyCheck;

    #[test]
    fn the_document_lists_every_check() {
        let document = include_str!("../../../docs/safety.md");
        for check in SafetyCheck::ALL {
            assert!(
                document.contains(&format!("| `{}` |", check.as_str())),
                "{check:?}"
            );
        }
    }
}

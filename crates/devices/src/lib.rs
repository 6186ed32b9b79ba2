//! The safety devices that tests can leave out, one at a time, to show what each is for.
//!
//! Without the feature `switches`, which only dev-dependencies ask for, every device is on and the compiler knows it. With it, the environment variable
//! `STOCKADE_WITHOUT` names the one that is off in this process. `docs/safety-devices.md` lists each device, the test that fails without it, and
//! what breaks.

/// A safety device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    /// A segment repeats what it has answered to an order.
    StickyAnswers,
    /// What was decided on a version of a row is written only to that version.
    VersionCheck,
    /// Only the holder of the highest fencing token changes what the lock protects.
    FenceClaim,
    /// An outbox is recorded only if it continues what was recorded last.
    AnchorCheck,
    /// The buyer's limit is checked at home, in the step that takes.
    LimitAtHome,
    /// The buyer's limit is checked again where orders are recorded that home's count may not cover.
    LimitInLedger,
}

impl Device {
    /// Every device.
    pub const ALL: [Self; 6] = [
        Self::StickyAnswers,
        Self::VersionCheck,
        Self::FenceClaim,
        Self::AnchorCheck,
        Self::LimitAtHome,
        Self::LimitInLedger,
    ];

    /// Its name, for `STOCKADE_WITHOUT` and the documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::StickyAnswers => "sticky_answers",
            Self::VersionCheck => "version_check",
            Self::FenceClaim => "fence_claim",
            Self::AnchorCheck => "anchor_check",
            Self::LimitAtHome => "limit_at_home",
            Self::LimitInLedger => "limit_in_ledger",
        }
    }
}

/// The variable that names the device to leave out.
pub const WITHOUT: &str = "STOCKADE_WITHOUT";

/// Whether the device is on. Always, unless this is a test.
#[cfg(not(feature = "switches"))]
pub const fn is_on(_device: Device) -> bool {
    true
}

/// Whether the device is on in this process.
#[cfg(feature = "switches")]
pub fn is_on(device: Device) -> bool {
    static OFF: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let off = OFF.get_or_init(|| std::env::var(WITHOUT).ok());
    off.as_deref() != Some(device.as_str())
}

/// Runs a test of this program by itself, once as it is and once without the device. It must pass and then fail.
///
/// # Panics
///
/// If it does not.
#[cfg(feature = "switches")]
pub fn assert_needed_by(device: Device, test: &str) {
    let run = |without: Option<Device>| {
        let program = std::env::current_exe().expect("a test knows its program");
        let mut command = std::process::Command::new(program);
        command
            .args(["--exact", test, "--nocapture"])
            .env_remove(WITHOUT);
        if let Some(device) = without {
            command.env(WITHOUT, device.as_str());
        }
        let output = command
            .output()
            .expect("the program runs once, so it runs again");
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr),
        )
    };
    let (passed, said) = run(None);
    assert!(
        passed && said.contains("1 passed"),
        "{test} does not pass as it is:\n{said}"
    );
    let (passed, said) = run(Some(device));
    assert!(
        !passed && said.contains("1 failed"),
        "{test} does not fail without {}:\n{said}",
        device.as_str()
    );
}

#[cfg(test)]
mod tests {
    use super::Device;

    #[test]
    fn the_document_lists_every_device() {
        let document = include_str!("../../../docs/safety-devices.md");
        for device in Device::ALL {
            assert!(
                document.contains(&format!("| `{}` |", device.as_str())),
                "{device:?}"
            );
        }
    }
}

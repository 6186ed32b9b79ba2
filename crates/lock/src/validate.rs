//! Validation of names, durations and addresses.

use std::time::Duration;

use crate::error::InvalidArgument;

/// Longest name of a lock. A name is a key on every server and is sent with every request.
const NAME_BYTES_MAX: usize = 1024;

/// Refuses the names that no backend allows.
pub(crate) fn check_name(name: &str) -> Result<(), InvalidArgument> {
    if name.is_empty() {
        return Err(InvalidArgument::EmptyName);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(InvalidArgument::NameTooLong {
            bytes: name.len(),
            max: NAME_BYTES_MAX,
        });
    }
    Ok(())
}

/// Refuses a duration that is out of range, with the name of its setting.
pub(crate) fn expect_duration(
    holds: bool,
    setting: &'static str,
    found: Duration,
    expected: &'static str,
) -> Result<(), InvalidArgument> {
    if holds {
        Ok(())
    } else {
        Err(InvalidArgument::Duration {
            setting,
            found,
            expected,
        })
    }
}

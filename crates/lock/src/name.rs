//! What a lock may be called.

use crate::error::InvalidArgument;

/// The longest name. A name is a key on every server and is sent with every request.
const BYTES_MAX: usize = 1024;

/// What every backend refuses.
pub(crate) fn check(name: &str) -> Result<(), InvalidArgument> {
    if name.is_empty() {
        return Err(InvalidArgument::EmptyName);
    }
    if name.len() > BYTES_MAX {
        return Err(InvalidArgument::NameTooLong {
            bytes: name.len(),
            max: BYTES_MAX,
        });
    }
    Ok(())
}

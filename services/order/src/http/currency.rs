//! Currencies in requests.

use super::Problem;

/// The code, if it has the form of one of ISO 4217.
pub(crate) fn checked(code: String) -> Result<String, Problem> {
    let fits = code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_uppercase());
    fits.then_some(code)
        .ok_or_else(|| Problem::invalid("currency", "expected three capital letters (ISO 4217)"))
}

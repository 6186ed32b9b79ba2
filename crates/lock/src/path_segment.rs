//! A lock name as one segment of a path, for servers whose keys are paths.
//!
//! Letters, digits and `-` stay. Every other byte becomes `_` and two hexadecimal digits, because
//! no other character is safe everywhere: `/` would nest one lock below another, ZooKeeper refuses
//! `.` and `..`, and Consul refuses most punctuation and names that end like file names. Two names
//! never share a segment, and operators can still read most of them.

use std::fmt::Write;

use crate::{error::InvalidArgument, validate::check_name};

/// Encodes a valid name.
pub(crate) fn encode(name: &str) -> Result<String, InvalidArgument> {
    check_name(name)?;
    let mut segment = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => segment.push(char::from(byte)),
            // Writing to a string cannot fail.
            _ => _ = write!(segment, "_{byte:02x}"),
        }
    }
    Ok(segment)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::encode;

    #[test]
    fn two_names_never_share_a_segment() {
        let names = [
            "a", "A", "a/b", "a_2fb", "a_", "a__", "_", "_5f", ".", "..", "ü", "a\n", "a b", "a-b",
            "a.js", "a\0",
        ];
        let segments: BTreeSet<_> = names.iter().map(|name| encode(name).unwrap()).collect();
        assert_eq!(segments.len(), names.len(), "{segments:?}");
    }

    #[test]
    fn a_segment_contains_no_character_with_a_special_meaning() {
        let segment = encode("item:42/../ä.js\0").unwrap();
        assert_eq!(segment, "item_3a42_2f_2e_2e_2f_c3_a4_2ejs_00");
    }
}

//! A name as one segment of a path, for servers that keep their keys as paths.
//!
//! Letters, digits and `-` stay; every other byte becomes `_` and two hexadecimal digits. Nothing else is safe everywhere: `/` would make one
//! lock lie below another, ZooKeeper refuses `.` and `..`, and Consul refuses most punctuation, and names that end like those of files. No two
//! names have the same segment, and operators can still read most of them.

use std::fmt::Write;

use crate::{error::InvalidArgument, name};

/// The segment of a name that a lock may have.
pub(crate) fn of_name(name: &str) -> Result<String, InvalidArgument> {
    name::check(name)?;
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

    use super::of_name;

    #[test]
    fn no_two_names_have_the_same_segment() {
        let names = [
            "a", "A", "a/b", "a_2fb", "a_", "a__", "_", "_5f", ".", "..", "ü", "a\n", "a b", "a-b",
            "a.js", "a\0",
        ];
        let segments: BTreeSet<_> = names.iter().map(|name| of_name(name).unwrap()).collect();
        assert_eq!(segments.len(), names.len(), "{segments:?}");
    }

    #[test]
    fn a_segment_has_nothing_in_it_that_a_server_could_take_for_something_else() {
        let segment = of_name("item:42/../ä.js\0").unwrap();
        assert_eq!(segment, "item_3a42_2f_2e_2e_2f_c3_a4_2ejs_00");
    }
}

//! Short texts in headers, written without a buffer on the heap.

use std::{fmt, io::Write, sync::LazyLock};

use http::HeaderValue;

/// The text as a header. `None`: it is longer than `N` bytes, or no header.
pub(super) fn header_of<const N: usize>(text: fmt::Arguments<'_>) -> Option<HeaderValue> {
    let mut buffer = [0; N];
    let mut rest = &mut buffer[..];
    rest.write_fmt(text).ok()?;
    let left = rest.len();
    HeaderValue::from_bytes(&buffer[..N - left]).ok()
}

/// Lengths below this are written once for the whole process.
const LENGTHS: usize = 512;

/// The value of `Content-Length`.
pub(super) fn content_length(length: usize) -> HeaderValue {
    static WRITTEN: LazyLock<Vec<HeaderValue>> = LazyLock::new(|| {
        let written = |length: usize| {
            let digits: &'static str = length.to_string().leak();
            HeaderValue::from_static(digits)
        };
        (0..LENGTHS).map(written).collect()
    });
    let written = WRITTEN.get(length).cloned();
    written.unwrap_or_else(|| HeaderValue::from(length))
}

#[cfg(test)]
mod tests {
    use super::{LENGTHS, content_length, header_of};

    #[test]
    fn a_text_that_does_not_fit_is_no_header() {
        assert_eq!(header_of::<4>(format_args!("{:04}", 12)).unwrap(), "0012");
        assert!(header_of::<4>(format_args!("{:05}", 12)).is_none());
        assert!(header_of::<4>(format_args!("a\nb")).is_none());
    }

    #[test]
    fn a_length_is_written_in_digits() {
        for length in [0, 7, 153, LENGTHS - 1, LENGTHS, 16_384] {
            assert_eq!(content_length(length), length.to_string());
        }
    }
}

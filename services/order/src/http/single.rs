//! Headers that have one value.

use domain::Invalid;
use http::{HeaderMap, HeaderValue};

/// The value of a header that a request may have once. `None`: it is absent.
///
/// A second header of the name is an error, also if it has the same value. To take the first of two
/// would let whoever added one, a proxy or a library, decide which order a key means or who asks.
pub(super) fn single<'a>(
    headers: &'a HeaderMap,
    name: &'static str,
) -> Result<Option<&'a HeaderValue>, Invalid> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    match values.next() {
        None => Ok(value),
        Some(_) => Err(Invalid::new(
            name,
            "the header once, and the request has several of this name",
        )),
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::single;

    const NAME: &str = "Idempotency-Key";

    #[test]
    fn a_second_header_of_the_name_is_an_error_that_names_it() {
        let mut headers = HeaderMap::new();
        assert_eq!(single(&headers, NAME).unwrap(), None);
        headers.append("idempotency-key", HeaderValue::from_static("a"));
        assert_eq!(single(&headers, NAME).unwrap().unwrap(), "a");
        for second in ["b", "a", ""] {
            let mut both = headers.clone();
            both.append("idempotency-key", HeaderValue::from_static(second));
            assert_eq!(single(&both, NAME).unwrap_err().field, NAME, "{second:?}");
        }
    }
}

//! Cookies that only this service reads.

use http::{HeaderMap, HeaderValue, header};
use rand::distr::{Alphanumeric, SampleString};

/// 256 bits.
const SECRET_CHARS: usize = 43;

/// A random text that cannot be guessed.
pub(crate) fn random_secret() -> String {
    Alphanumeric.sample_string(&mut rand::rng(), SECRET_CHARS)
}

/// The value of a cookie of the request.
pub(crate) fn read<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find_map(|(found, value)| (found == name).then_some(value))
}

/// A cookie that scripts cannot read, and that other sites do not make a browser send.
pub(crate) struct Cookie<'a> {
    pub name: &'static str,
    /// ASCII without `;`.
    pub value: &'a str,
    pub path: &'static str,
    pub seconds: u64,
    /// Whether the browser reached the service by https.
    pub secure: bool,
}

impl Cookie<'_> {
    /// The value of `Set-Cookie`.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        let Self {
            name,
            value,
            path,
            seconds,
            secure,
        } = self;
        let secure = if *secure { "; Secure" } else { "" };
        HeaderValue::try_from(format!(
            "{name}={value}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
        ))
        .ok()
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, header};

    use super::{Cookie, read};

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("xa=1; a=2"));
        headers.append(header::COOKIE, HeaderValue::from_static("b=3"));
        assert_eq!(read(&headers, "a"), Some("2"));
        assert_eq!(read(&headers, "b"), Some("3"));
        assert_eq!(read(&headers, "c"), None);
    }

    #[test]
    fn a_cookie_is_strict() {
        let cookie = Cookie {
            name: "a",
            value: "1",
            path: "/console",
            seconds: 60,
            secure: true,
        };
        assert_eq!(
            cookie.header().unwrap(),
            "a=1; Path=/console; Max-Age=60; HttpOnly; SameSite=Strict; Secure"
        );
    }
}

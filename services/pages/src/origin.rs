//! Whether a form was sent by a page of this service.

use http::{HeaderMap, HeaderName, Uri, header};

/// Whether the page that sent the form came from the host that received it. Browsers name the
/// origin of every form that changes something. A proxy must pass the host on.
pub(crate) fn is_own(headers: &HeaderMap) -> bool {
    let (Some(origin), Some(host)) = (uri(headers), single(headers, &header::HOST)) else {
        return false;
    };
    origin
        .authority()
        .is_some_and(|authority| authority.as_str().eq_ignore_ascii_case(host))
}

/// Whether that page was reached by https, so that its cookies must be as well.
pub(crate) fn is_https(headers: &HeaderMap) -> bool {
    uri(headers).is_some_and(|origin| origin.scheme_str() == Some("https"))
}

fn uri(headers: &HeaderMap) -> Option<Uri> {
    single(headers, &header::ORIGIN)?.parse().ok()
}

/// The value of a header. Two of one name are none: the form might come from either.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then(|| value.to_str().ok())?
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, header};

    use super::{is_https, is_own};

    fn headers(origin: Option<&'static str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("shop:8080"));
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
        }
        headers
    }

    #[test]
    fn only_the_same_host_and_port_are_own() {
        for (origin, own) in [
            (Some("http://shop:8080"), true),
            (Some("https://Shop:8080"), true),
            (Some("http://shop"), false),
            (Some("http://evil:8080"), false),
            (Some("null"), false),
            (None, false),
        ] {
            assert_eq!(is_own(&headers(origin)), own, "{origin:?}");
        }
        let mut two = headers(Some("http://shop:8080"));
        two.append(header::ORIGIN, HeaderValue::from_static("http://evil:8080"));
        assert!(!is_own(&two));
        assert!(is_https(&headers(Some("https://shop:8080"))));
        assert!(!is_https(&headers(Some("http://shop:8080"))));
    }
}

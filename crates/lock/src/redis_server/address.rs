//! The address of a server, and what the operator declares about it there.

use crate::{
    error::InvalidArgument,
    secrets::{unencoded, without_secrets},
};

const DURABLE: &str = "durable";

/// A server's URL, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// For the client library, without our own parameters.
    pub url: String,
    /// Whether the URL says `durable=true`.
    pub is_declared_durable: bool,
}

impl Address {
    /// `redis://HOST:PORT/DB?durable=true&protocol=resp3#insecure`: only `durable` is ours.
    pub(super) fn parse(text: &str) -> Result<Self, InvalidArgument> {
        // What looks like a parameter could be the rest of a password.
        if unencoded(text, false).is_some() {
            return Err(InvalidArgument::Url {
                found: without_secrets(text),
                expected: "redis://HOST:PORT or rediss://HOST:PORT with a user and a password that are encoded as a URL requires",
            });
        }
        let (text_before, fragment) = split(text, '#');
        let (address, query) = split(text_before, '?');
        let (ours, theirs): (Vec<_>, Vec<_>) = query
            .split('&')
            .filter(|parameter| !parameter.is_empty())
            .partition(|parameter| parameter.split('=').next() == Some(DURABLE));
        let is_declared_durable = match ours[..] {
            [] | ["durable=false"] => false,
            ["durable=true"] => true,
            _ => {
                return Err(InvalidArgument::UrlParameter {
                    url: without_secrets(address),
                    found: ours.join("&"),
                    expected: "durable=true or durable=false",
                });
            }
        };
        let mut url = address.to_owned();
        for (separator, part) in [("?", theirs.join("&").as_str()), ("#", fragment)] {
            if !part.is_empty() {
                url.push_str(separator);
                url.push_str(part);
            }
        }
        Ok(Self {
            url,
            is_declared_durable,
        })
    }
}

fn split(text: &str, separator: char) -> (&str, &str) {
    text.split_once(separator).unwrap_or((text, ""))
}

#[cfg(test)]
mod tests {
    use super::{Address, InvalidArgument};

    #[test]
    fn durable_is_taken_out_of_the_url_and_everything_else_stays() {
        let table = [
            ("redis://a", "redis://a", false),
            ("redis://a:1?durable=true", "redis://a:1", true),
            ("redis://a:1/2?durable=false", "redis://a:1/2", false),
            (
                "rediss://u:p@a:1?durable=true&protocol=resp3#insecure",
                "rediss://u:p@a:1?protocol=resp3#insecure",
                true,
            ),
            (
                "redis://a?protocol=resp2&durable=true",
                "redis://a?protocol=resp2",
                true,
            ),
            ("redis://a?durably=1", "redis://a?durably=1", false),
        ];
        for (text, url, is_declared_durable) in table {
            let expected = Address {
                url: url.into(),
                is_declared_durable,
            };
            assert_eq!(Address::parse(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn an_unknown_value_of_durable_is_refused_by_name_and_shows_no_password() {
        let wrong = [
            "durable=maybe",
            "durable=",
            "durable",
            "durable=TRUE",
            "durable=true&durable=false",
        ];
        for parameters in wrong {
            let error = Address::parse(&format!("redis://user:secret@a:1?{parameters}"))
                .expect_err(parameters);
            let InvalidArgument::UrlParameter { url, found, .. } = &error else {
                panic!("{error}")
            };
            assert_eq!(
                (url.as_str(), found.as_str()),
                ("redis://***@a:1", parameters)
            );
            assert!(error.to_string().contains(parameters), "{error}");
        }
    }

    #[test]
    fn the_rest_of_a_password_is_no_parameter_and_is_not_shown() {
        for url in [
            "redis://user:x?durable=secret@a:1",
            "redis://user:1?durable=true&secret@a:1",
            "redis://user:1/secret@a:1?durable=maybe",
        ] {
            let error = Address::parse(url).expect_err(url).to_string();
            assert!(
                error.contains("encoded") && !error.contains("secret"),
                "{error}"
            );
        }
    }
}

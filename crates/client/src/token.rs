//! Tokens: what proves who calls.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use reqwest::header::HeaderValue;
use serde::Serialize;

use crate::{Error, signature::hmac_sha256};

/// `{"alg":"HS256","typ":"JWT"}` in base64url.
const HEADER: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9";

/// A bearer token: a buyer's JWT, or the admin token.
#[derive(Clone)]
pub struct Token(HeaderValue);

#[derive(Serialize)]
struct Claims<'a> {
    sub: &'a str,
    exp: u64,
}

impl Token {
    /// A token that was issued elsewhere.
    pub fn bearer(token: impl AsRef<str>) -> Result<Self, Error> {
        let value = format!("Bearer {}", token.as_ref());
        HeaderValue::try_from(value)
            .map(Self::sensitive)
            .map_err(|_| Error::InvalidInput {
                field: "token",
                expected: "visible ASCII characters",
            })
    }

    /// Issues a buyer's JWT (HS256), which is valid for `lifetime` from now.
    ///
    /// For tests and tools, and for shops that share `STOCKADE_JWT_SECRET` with the service. A shop
    /// with a public key (`STOCKADE_JWT_PUBLIC_KEY`) issues tokens with its own library.
    pub fn mint_buyer(secret: impl AsRef<[u8]>, buyer: &str, lifetime: Duration) -> Self {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self::mint_until(secret.as_ref(), buyer, (now + lifetime).as_secs())
    }

    fn mint_until(secret: &[u8], buyer: &str, expires: u64) -> Self {
        let claims = Claims {
            sub: buyer,
            exp: expires,
        };
        let claims = serde_json::to_vec(&claims).unwrap_or_default();
        let signed = format!("{HEADER}.{}", URL_SAFE_NO_PAD.encode(claims));
        let tag = URL_SAFE_NO_PAD.encode(hmac_sha256(secret, &[signed.as_bytes()]));
        // Base64url and dots are valid in every header.
        let value = HeaderValue::try_from(format!("Bearer {signed}.{tag}"));
        Self::sensitive(value.unwrap_or(HeaderValue::from_static("")))
    }

    /// Keeps the token out of debug output and of HTTP/2 header compression.
    fn sensitive(mut value: HeaderValue) -> Self {
        value.set_sensitive(true);
        Self(value)
    }

    /// The token itself, without `Bearer`.
    pub fn as_str(&self) -> &str {
        self.0
            .to_str()
            .unwrap_or_default()
            .trim_start_matches("Bearer ")
    }

    pub(crate) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::Token;

    /// Computed with `openssl dgst -sha256 -hmac Jefe -binary | basenc --base64url`.
    #[test]
    fn a_minted_token_is_what_others_compute() {
        let token = Token::mint_until(b"Jefe", "ann", 2_000_000_000);
        let expected = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhbm4iLCJleHAiOjIwMDAwMDAwMDB9.dtUaZnM4Fv4UWfLZ2B65LWEixPEbGzdk8lG9b76i_Fo";
        assert_eq!(token.as_str(), expected);
        assert_eq!(format!("{token:?}"), "Token(..)", "logs do not leak it");
    }
}

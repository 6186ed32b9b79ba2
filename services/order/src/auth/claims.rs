//! The claims of a buyer's token, and whether they hold now.
//!
//! The clock that `nbf` and `iat` come from is that of another machine. Two clocks that are set by
//! the network differ by fractions of a second, and a fresh token would be refused without leeway.
//! `exp` has none: nothing but its expiry ends a token that has leaked, and a login that renews its
//! tokens in time does not notice a clock that is a little behind.

use std::time::Duration;

use domain::BuyerId;
use jsonwebtoken::errors::{Error as JwtError, ErrorKind};
use serde::{Deserialize, Deserializer, Serialize, de::Error};

/// The claims of a buyer's token.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Claims {
    #[serde(deserialize_with = "buyer")]
    pub sub: BuyerId,
    /// Seconds since 1970, perhaps with a fraction (RFC 7519, NumericDate). Required: a token that
    /// never expires can never be revoked.
    #[serde(deserialize_with = "exp")]
    pub(super) exp: f64,
    #[serde(
        default,
        deserialize_with = "nbf",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) nbf: Option<f64>,
    /// A token that was issued in the future comes from a login whose clock is wrong, so that its
    /// `exp` is as wrong. RFC 7519 leaves it open what to do; most libraries refuse it.
    #[serde(
        default,
        deserialize_with = "iat",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) iat: Option<f64>,
}

/// Why a token names no buyer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenRefused {
    /// Nothing in it can be believed, so nothing of it is told.
    #[error("the token is not a JWT that a key of this service verifies")]
    Unverified,
    /// Its signature is good, and this claim is not.
    #[error("{0}")]
    Claim(String),
}

impl Claims {
    /// Whether the token is valid at this time, in seconds since 1970.
    pub(super) fn check_at(&self, now: f64, leeway: Duration) -> Result<(), TokenRefused> {
        if now >= self.exp {
            let ago = seconds(now - self.exp);
            return Err(TokenRefused::Claim(format!(
                "exp was {ago} s ago: the token has expired"
            )));
        }
        for (claim, time) in [("nbf", self.nbf), ("iat", self.iat)] {
            let ahead = time.map_or(0.0, |time| time - now);
            if ahead > leeway.as_secs_f64() {
                let (ahead, allowed) = (seconds(ahead), leeway.as_secs());
                return Err(TokenRefused::Claim(format!(
                    "{claim} is {ahead} s in the future, and {allowed} s are allowed for clocks that differ"
                )));
            }
        }
        Ok(())
    }
}

/// Whole seconds, for a text.
fn seconds(difference: f64) -> u64 {
    Duration::try_from_secs_f64(difference.round()).map_or(u64::MAX, |time| time.as_secs())
}

impl TokenRefused {
    /// The library compares the signature first, so an error about a claim is one of a token that a
    /// key of ours has signed.
    pub(super) fn of(error: &JwtError) -> Self {
        match error.kind() {
            ErrorKind::Json(error) => {
                let text = error.to_string();
                // The position in the text is no help: a library built the token.
                let text = text.split(" at line ").next().unwrap_or_default();
                Self::Claim(text.to_owned())
            }
            ErrorKind::MissingRequiredClaim(claim) => {
                Self::Claim(format!("{claim} is missing, or has no valid form"))
            }
            ErrorKind::InvalidIssuer => {
                Self::Claim("iss is not the issuer that is required".into())
            }
            ErrorKind::InvalidAudience => {
                Self::Claim("aud does not have the audience that is required".into())
            }
            _ => Self::Unverified,
        }
    }

    /// Of the refusals by several keys, that of the key which has signed it.
    pub(super) fn or(self, other: Self) -> Self {
        match self {
            Self::Unverified => other,
            Self::Claim(_) => self,
        }
    }
}

/// A buyer whom no URL can name could not be erased, and is not let in.
fn buyer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BuyerId, D::Error> {
    let text = String::deserialize(deserializer).map_err(|_| D::Error::custom("sub is no text"))?;
    BuyerId::addressable(text)
        .map_err(|invalid| D::Error::custom(format_args!("sub: expected {}", invalid.expected)))
}

fn exp<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    f64::deserialize(deserializer).map_err(|_| no_time("exp"))
}

fn nbf<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    Option::deserialize(deserializer).map_err(|_| no_time("nbf"))
}

fn iat<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    Option::deserialize(deserializer).map_err(|_| no_time("iat"))
}

fn no_time<E: Error>(claim: &str) -> E {
    E::custom(format_args!("{claim} is no number of seconds since 1970"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use domain::BuyerId;

    use super::{Claims, TokenRefused};

    const NOW: f64 = 1_800_000_000.25;
    const LEEWAY: Duration = Duration::from_secs(30);

    fn checked(exp: f64, nbf: Option<f64>, iat: Option<f64>, leeway: Duration) -> Option<String> {
        let claims = Claims {
            sub: BuyerId::new("ann").unwrap(),
            exp: NOW + exp,
            nbf: nbf.map(|nbf| NOW + nbf),
            iat: iat.map(|iat| NOW + iat),
        };
        let refused = claims.check_at(NOW, leeway).err();
        refused.map(|refused| refused.to_string())
    }

    #[test]
    fn a_clock_that_is_ahead_by_the_leeway_makes_no_token_bad() {
        for ahead in [-3600.0, 0.0, 0.5, 29.5, 30.0] {
            for (nbf, iat) in [
                (Some(ahead), None),
                (None, Some(ahead)),
                (Some(ahead), Some(ahead)),
            ] {
                assert_eq!(checked(60.0, nbf, iat, LEEWAY), None, "{nbf:?} {iat:?}");
            }
        }
    }

    #[test]
    fn the_claim_that_fails_is_named_with_the_difference() {
        let zero = Duration::ZERO;
        for (exp, nbf, iat, leeway, expected) in [
            (
                60.0,
                Some(3600.0),
                None,
                LEEWAY,
                "nbf is 3600 s in the future",
            ),
            (
                60.0,
                Some(0.0),
                Some(31.0),
                LEEWAY,
                "iat is 31 s in the future",
            ),
            (60.0, Some(0.5), None, zero, "and 0 s are allowed"),
            (60.0, Some(1e300), None, LEEWAY, "nbf is"),
            (0.0, None, None, LEEWAY, "exp was 0 s ago"),
            (-12.0, Some(3600.0), None, LEEWAY, "exp was 12 s ago"),
        ] {
            let refused = checked(exp, nbf, iat, leeway).unwrap();
            assert!(refused.contains(expected), "{refused}");
        }
    }

    #[test]
    fn a_claim_of_another_form_is_named() {
        for (claims, expected) in [
            (r#"{"sub":"ann"}"#, "exp"),
            (r#"{"sub":"ann","exp":"tomorrow"}"#, "exp is no number"),
            (r#"{"sub":"ann","exp":1,"nbf":"now"}"#, "nbf is no number"),
            (r#"{"sub":"ann","exp":1,"iat":[]}"#, "iat is no number"),
            (r#"{"exp":1}"#, "sub"),
            (r#"{"sub":7,"exp":1}"#, "sub is no text"),
            (r#"{"sub":"","exp":1}"#, "sub: expected 1 to 128 bytes"),
            (r#"{"sub":"..","exp":1}"#, "sub: expected another name"),
        ] {
            let refused = serde_json::from_str::<Claims>(claims)
                .unwrap_err()
                .to_string();
            assert!(refused.contains(expected), "{claims}: {refused}");
        }
    }

    #[test]
    fn of_several_keys_the_one_that_has_signed_says_why() {
        let claim = TokenRefused::Claim("aud".into());
        let unverified = TokenRefused::Unverified;
        assert_eq!(unverified.clone().or(claim.clone()), claim);
        assert_eq!(claim.clone().or(unverified.clone()), claim);
        assert_eq!(unverified.clone().or(unverified.clone()), unverified);
    }
}

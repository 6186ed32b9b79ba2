//! The cryptography of buyers' tokens with ring: `jsonwebtoken` itself contains none.
//!
//! `jsonwebtoken` offers two providers: aws-lc, which takes two minutes to build, and RustCrypto,
//! whose RSA does not run in constant time. rustls needs ring anyway.

use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey,
    crypto::{CryptoProvider, JwkUtils, JwtSigner, JwtVerifier},
    errors::{Error, ErrorKind, new_error},
    signature::{self, Signer, Verifier},
};
use ring::{
    hmac,
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
        RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RsaParameters,
        RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
    },
};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: signer,
    verifier_factory: verifier,
    jwk_utils: JwkUtils::new_unimplemented(),
};

/// Installs ring as the provider of this process. Calls after the first have no effect.
pub(super) fn install() {
    let _ = PROVIDER.install_default();
}

/// Signs and verifies with a shared secret.
struct Secret(hmac::Key);

/// Verifies with the issuer's public key.
struct PublicKey {
    algorithm: Algorithm,
    key: UnparsedPublicKey<Vec<u8>>,
}

/// Verifies with the issuer's public key from a key set, which has an RSA key in parts.
struct RsaComponents {
    algorithm: Algorithm,
    parameters: &'static RsaParameters,
    key: RsaPublicKeyComponents<Vec<u8>>,
}

/// The service signs tokens with a shared secret only. Other tokens come from their issuer.
fn signer(algorithm: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    match algorithm {
        Algorithm::HS256 => Ok(Box::new(Secret::new(key.try_get_hmac_secret()?))),
        _ => Err(new_error(ErrorKind::InvalidAlgorithm)),
    }
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    if key.family() != algorithm.family() {
        return Err(new_error(ErrorKind::InvalidKeyFormat));
    }
    if key.family() == AlgorithmFamily::Hmac {
        return match algorithm {
            Algorithm::HS256 => Ok(Box::new(Secret::new(key.try_get_hmac_secret()?))),
            _ => Err(new_error(ErrorKind::InvalidAlgorithm)),
        };
    }
    match key.kind() {
        DecodingKeyKind::SecretOrDer(bytes) => Ok(Box::new(PublicKey {
            algorithm: *algorithm,
            key: UnparsedPublicKey::new(verification(*algorithm)?, bytes.clone()),
        })),
        DecodingKeyKind::RsaModulusExponent { n, e } => Ok(Box::new(RsaComponents {
            algorithm: *algorithm,
            parameters: rsa(*algorithm)?,
            key: RsaPublicKeyComponents {
                n: n.clone(),
                e: e.clone(),
            },
        })),
    }
}

/// No buyer's token may be signed with RSASSA-PSS, so its algorithms are missing here.
fn verification(algorithm: Algorithm) -> Result<&'static dyn VerificationAlgorithm, Error> {
    Ok(match algorithm {
        Algorithm::ES256 => &ECDSA_P256_SHA256_FIXED,
        Algorithm::ES384 => &ECDSA_P384_SHA384_FIXED,
        Algorithm::EdDSA => &ED25519,
        _ => rsa(algorithm)?,
    })
}

fn rsa(algorithm: Algorithm) -> Result<&'static RsaParameters, Error> {
    Ok(match algorithm {
        Algorithm::RS256 => &RSA_PKCS1_2048_8192_SHA256,
        Algorithm::RS384 => &RSA_PKCS1_2048_8192_SHA384,
        Algorithm::RS512 => &RSA_PKCS1_2048_8192_SHA512,
        _ => return Err(new_error(ErrorKind::InvalidAlgorithm)),
    })
}

impl Secret {
    fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }
}

impl Signer<Vec<u8>> for Secret {
    fn try_sign(&self, message: &[u8]) -> Result<Vec<u8>, signature::Error> {
        Ok(hmac::sign(&self.0, message).as_ref().to_vec())
    }
}

impl JwtSigner for Secret {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

impl Verifier<Vec<u8>> for Secret {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        hmac::verify(&self.0, message, signature).map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for Secret {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

impl Verifier<Vec<u8>> for PublicKey {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        self.key
            .verify(message, signature)
            .map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for PublicKey {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for RsaComponents {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        self.key
            .verify(self.parameters, message, signature)
            .map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for RsaComponents {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

#[cfg(test)]
mod tests {
    use crate::auth::{BuyerKey, Credentials};

    macro_rules! vector {
        ($file:literal) => {
            include_str!(concat!("vectors/", $file))
        };
    }

    /// Signed with OpenSSL, by way of Python's `cryptography`: a key, and tokens of the buyer
    /// `ann`.
    const VECTORS: [(&str, &[&str]); 5] = [
        (
            vector!("rsa.pem"),
            &[vector!("rs256.jwt"), vector!("rs512.jwt")],
        ),
        (vector!("rsa_pkcs1.pem"), &[vector!("rs256.jwt")]),
        (vector!("p256.pem"), &[vector!("es256.jwt")]),
        (vector!("p384.pem"), &[vector!("es384.jwt")]),
        (vector!("ed25519.pem"), &[vector!("eddsa.jwt")]),
    ];

    fn credentials(pem: &str) -> Credentials {
        Credentials::new(&BuyerKey::PublicKey(pem.into()), "admin-token").unwrap()
    }

    #[test]
    fn a_token_is_accepted_with_the_public_key_of_its_issuer_and_with_no_other() {
        for (pem, tokens) in VECTORS {
            let credentials = credentials(pem);
            for token in tokens {
                let claims = credentials.buyer(token.trim()).unwrap();
                assert_eq!(claims.sub.as_str(), "ann", "{token}");
            }
            let rsa = pem.contains("RSA") || pem == VECTORS[0].0;
            let others = VECTORS.iter().flat_map(|(_, tokens)| *tokens);
            for token in others.filter(|token| !tokens.contains(token)) {
                let same_key = rsa && VECTORS[0].1.contains(token);
                assert_eq!(credentials.buyer(token.trim()).is_ok(), same_key, "{token}");
            }
        }
    }

    #[test]
    fn a_token_whose_payload_or_signature_was_changed_is_refused() {
        for (pem, tokens) in VECTORS {
            let credentials = credentials(pem);
            for token in tokens.iter().map(|token| token.trim()) {
                let [header, payload, signature] = token.split('.').collect::<Vec<_>>()[..] else {
                    panic!("{token}");
                };
                // {"sub":"bob","exp":4102444800}
                let bob = format!("{header}.eyJzdWIiOiJib2IiLCJleHAiOjQxMDI0NDQ4MDB9.{signature}");
                let cut = format!("{header}.{payload}.{}", &signature[..signature.len() - 4]);
                let none = format!("{header}.{payload}.");
                for changed in [bob, cut, none] {
                    assert!(credentials.buyer(&changed).is_err(), "{changed}");
                }
            }
        }
    }

    #[test]
    fn a_token_signed_with_rsassa_pss_is_refused() {
        let token = vector!("ps256.jwt").trim();
        assert!(credentials(VECTORS[0].0).buyer(token).is_err());
    }
}

//! Who may call, and whose reports of payments count.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail};
use order::{BuyerKey, PaymentKey, PaymentKeys, TokenPolicy};

use super::{
    Layers, Settings,
    declaration::settings,
    kinds::{optional, path, read_by, seconds, secret, text},
};
use crate::{
    http,
    key_set::{KeySet, KeySetSource},
};

settings! {
    /// Keys and tokens.
    Access {
        /// HS256 secret of the buyers' tokens, 16 characters or more
        jwt_secret: Option<String>, secret();
        /// the secret before this one, accepted as well while your login changes it
        jwt_secret_previous: Option<String>, secret();
        /// what buyers' tokens must have as `iss`; unset: anything
        jwt_issuer: Option<String>, optional(text());
        /// what buyers' tokens must have as `aud`, so that tokens for other applications do not buy.
        /// Required with `STOCKADE_JWT_PUBLIC_KEY` and `STOCKADE_JWKS`, whose keys sign such tokens,
        /// too. Unset with a secret: anything
        jwt_audience: Option<String>, optional(text());
        /// seconds that `nbf` and `iat` of a buyer's token may be in the future, because the clock
        /// of your login is another one; [`exp` has no leeway](api.md#who-may-call)
        jwt_leeway_seconds: Duration = 30, seconds(0..=600);
        /// PEM file with the public key of the issuer, instead of a secret; needs
        /// `STOCKADE_JWT_AUDIENCE`
        jwt_public_key: Option<PathBuf>, optional(path());
        /// file or `https://` URL of the issuer's JSON Web Key Set, instead of a secret or a PEM
        /// file; needs `STOCKADE_JWT_AUDIENCE`
        jwks: Option<KeySetSource>, read_by(jwks);
        /// secret of the admin who may do everything, 16 characters or more; not needed with the
        /// next one
        admin_token: Option<String>, secret();
        /// TOML file with named admins: name, `token_sha256` and [scopes](api.md#who-may-call) of
        /// each, see [Security](operations.md#security)
        admins_file: Option<PathBuf>, optional(path());
        /// HMAC secret of payment messages; without it no payment is accepted
        payment_secret: Option<String>, secret();
        /// signing secret of [Stripe's](api.md#stripe) webhook endpoint (`whsec_...`); unset:
        /// Stripe's events are refused
        stripe_secret: Option<String>, secret();
        /// the signing secret before this one, accepted as well while it changes
        stripe_secret_previous: Option<String>, secret();
        /// seconds that a payment message may be old, and in the future
        payment_window_seconds: Duration = 300, seconds(1..=86_400);
    }
}

fn jwks(layers: &Layers, key: &str) -> Result<Option<KeySetSource>> {
    let Some(text) = layers.text(key) else {
        return Ok(None);
    };
    KeySetSource::parse(&text)
        .map(Some)
        .ok_or_else(|| layers.wrong(key, KeySetSource::EXPECTED))
}

impl Access {
    /// What buyers' tokens must say.
    pub fn token_policy(&self) -> TokenPolicy {
        TokenPolicy {
            issuer: self.jwt_issuer.clone(),
            audience: self.jwt_audience.clone(),
            leeway: self.jwt_leeway_seconds,
        }
    }

    /// The key that verifies buyers' tokens.
    pub fn buyer_key(&self) -> Result<BuyerKey> {
        if let Some(path) = &self.jwt_public_key {
            let pem = std::fs::read(path).with_context(|| {
                format!("STOCKADE_JWT_PUBLIC_KEY: cannot read {}", path.display())
            })?;
            return Ok(BuyerKey::PublicKey(pem));
        }
        let secret = self.jwt_secret.as_deref();
        let secret = secret.context("neither STOCKADE_JWT_SECRET nor STOCKADE_JWT_PUBLIC_KEY nor STOCKADE_JWKS is set: expected a key that verifies buyers' tokens")?;
        Ok(BuyerKey::Secret(secret.into()))
    }

    /// The keys that sign reports of payments.
    pub fn payment_keys(&self) -> PaymentKeys {
        let key = |secret: &String| PaymentKey::new(secret.as_bytes(), self.payment_window_seconds);
        let stripe = [&self.stripe_secret, &self.stripe_secret_previous];
        PaymentKeys {
            provider: self.payment_secret.as_ref().map(key),
            stripe: stripe.into_iter().flatten().map(key).collect(),
        }
    }
}

impl Settings {
    /// The token of the admin who may do everything.
    pub fn admin_token(&self) -> Result<&str> {
        self.access
            .admin_token
            .as_deref()
            .context("STOCKADE_ADMIN_TOKEN is not set: expected a secret of 16 characters or more")
    }

    /// The secret that signs buyers' tokens.
    pub fn jwt_secret(&self) -> Result<&str> {
        self.access
            .jwt_secret
            .as_deref()
            .context("STOCKADE_JWT_SECRET is not set: expected a secret of 16 characters or more")
    }

    /// The key set that verifies buyers' tokens, if there is one.
    pub fn key_set(&self) -> Option<KeySet> {
        Some(KeySet {
            source: self.access.jwks.clone()?,
            authority: http::authority(self.tls.as_ref()),
        })
    }

    /// Fails if buyers' tokens are verified with a key of an identity provider, and no audience is
    /// set. Such a key signs tokens for many applications; a shared secret is the shop's own.
    pub fn check_audience(&self) -> Result<()> {
        let key = match (&self.access.jwks, &self.access.jwt_public_key) {
            (Some(_), _) => "STOCKADE_JWKS",
            (None, Some(_)) => "STOCKADE_JWT_PUBLIC_KEY",
            (None, None) => return Ok(()),
        };
        if self.service.roles.order && self.access.jwt_audience.is_none() {
            bail!(
                "STOCKADE_JWT_AUDIENCE is not set: expected the audience (`aud`) of this shop's tokens, because the keys of {key} sign tokens for other applications, too"
            );
        }
        Ok(())
    }
}

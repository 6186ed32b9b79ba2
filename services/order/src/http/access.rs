//! Extractors that authenticate the caller and parse the path.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Path};
use domain::BuyerId;
use http::{HeaderMap, header, request::Parts};

use super::{App, Problem};

/// The caller is a buyer.
pub(crate) struct Buyer(pub BuyerId);

/// The caller is an admin.
pub(crate) struct Admin;

/// The caller is a buyer or an admin.
pub(crate) enum BuyerOrAdmin {
    Buyer(BuyerId),
    Admin,
}

impl BuyerOrAdmin {
    /// The buyer whose orders the caller may see. `None`: all buyers.
    pub(crate) fn buyer(&self) -> Option<&BuyerId> {
        match self {
            Self::Buyer(buyer) => Some(buyer),
            Self::Admin => None,
        }
    }
}

/// Whether the caller is an admin. Any caller is accepted.
pub(crate) struct MaybeAdmin(pub bool);

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

impl FromRequestParts<App> for Buyer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let claims = bearer(&parts.headers).and_then(|token| app.credentials.buyer(token));
        let claims = claims.ok_or_else(|| {
            Problem::unauthorized(
                "a buyer's JWT that is signed, not expired, and names the buyer in `sub`",
            )
        })?;
        let buyer = Arc::unwrap_or_clone(claims).sub;
        app.rates.admit(&buyer, parts.uri.path())?;
        Ok(Self(buyer))
    }
}

impl FromRequestParts<App> for Admin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let MaybeAdmin(admin) = MaybeAdmin::from_request_parts(parts, app).await?;
        admin
            .then_some(Self)
            .ok_or_else(|| Problem::unauthorized("the admin token"))
    }
}

impl FromRequestParts<App> for MaybeAdmin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        Ok(Self(
            bearer(&parts.headers).is_some_and(|token| app.credentials.is_admin(token)),
        ))
    }
}

impl FromRequestParts<App> for BuyerOrAdmin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        if MaybeAdmin::from_request_parts(parts, app).await?.0 {
            return Ok(Self::Admin);
        }
        Buyer::from_request_parts(parts, app)
            .await
            .map(|Buyer(buyer)| Self::Buyer(buyer))
    }
}

/// The name in the path. A name that is not UTF-8 is treated like an unknown one.
pub(crate) struct Name(pub String);

impl FromRequestParts<App> for Name {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Self::Rejection> {
        let name = Path::<String>::from_request_parts(parts, app).await;
        Ok(Self(name.map(|Path(name)| name).unwrap_or_default()))
    }
}

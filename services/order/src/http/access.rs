//! Extractors that authenticate the caller and parse the path.

use std::{collections::BTreeMap, convert::Infallible, marker::PhantomData, sync::Arc};

use axum::extract::{FromRequestParts, Path};
use domain::{BuyerId, Invalid};
use http::{HeaderMap, request::Parts};
use utoipa::{
    IntoResponses,
    openapi::{RefOr, Response},
};

use super::{App, Problem, description::problems, single::single};
use crate::{auth::Scope, engine::Caller};

/// The caller is a buyer.
pub(crate) struct Buyer(pub BuyerId);

/// The caller is an admin with the scope `S`.
pub(crate) struct AdminWith<S> {
    /// The admin's name, for the journal.
    pub name: Arc<str>,
    /// Whether the admin may change webhooks, too, and so may see where they lead.
    pub writes_webhooks: bool,
    scope: PhantomData<S>,
}

/// The caller is a buyer, or an admin with the scope `S`.
pub(crate) struct BuyerOrAdmin<S> {
    /// The buyer whose orders the caller may see. `None`: an admin, who may see all.
    pub buyer: Option<BuyerId>,
    caller: Caller,
    scope: PhantomData<S>,
}

impl<S> BuyerOrAdmin<S> {
    /// The buyer or the admin, for the engine.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }
}

/// Whether the caller is an admin who may read. Any caller is accepted.
pub(crate) struct MaybeAdmin(pub bool);

/// A scope in the type of a handler's argument: the handler does not run without it.
pub(crate) trait Requires {
    const SCOPE: Scope;
}

macro_rules! scopes {
    ($($scope:ident)*) => {$(
        /// See the [`Scope`] of this name.
        pub(crate) struct $scope;

        impl Requires for $scope {
            const SCOPE: Scope = Scope::$scope;
        }
    )*};
}

scopes!(Read ItemsWrite StockWrite OrdersPlace RefundsWrite WebhooksWrite BuyersErase);

/// What a buyer must present.
const BUYERS: &str = "a buyer's JWT that is signed, not expired, and names the buyer in `sub`";
/// What an admin must present.
const ADMINS: &str = "an admin's token";

/// The token of the request. `Ok(None)`: it has none. An error: it has several, and might mean any.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Invalid> {
    let value = single(headers, "Authorization")?.and_then(|value| value.to_str().ok());
    let parts = value.and_then(|value| value.split_once(' '));
    let token = parts.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    Ok(token.map(|(_, token)| token.trim()))
}

/// The same for a caller who must present this.
fn required<'a>(headers: &'a HeaderMap, expected: &str) -> Result<Option<&'a str>, Problem> {
    bearer(headers).map_err(|several| {
        let why = format_args!("{}: expected {}", several.field, several.expected);
        Problem::unauthorized_because(expected, why)
    })
}

impl FromRequestParts<App> for Buyer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        Self::of(parts, app)
    }
}

impl Buyer {
    pub(super) fn of(parts: &Parts, app: &App) -> Result<Self, Problem> {
        let token = required(&parts.headers, BUYERS)?;
        let token = token.ok_or_else(|| Problem::unauthorized(BUYERS))?;
        let claims = app.credentials.buyer(token);
        let claims = claims.map_err(|refused| Problem::unauthorized_because(BUYERS, refused))?;
        app.rates.admit(&claims.sub, parts.uri.path())?;
        Ok(Self(claims.sub.clone()))
    }
}

impl<S: Requires> FromRequestParts<App> for AdminWith<S> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let token = required(&parts.headers, ADMINS)?;
        let Some(admin) = token.and_then(|token| app.credentials.admin(token)) else {
            let buyer = token.and_then(|token| app.credentials.buyer(token).ok());
            return Err(match buyer {
                Some(_) => Problem::forbidden("only admins may do this"),
                None => Problem::unauthorized(ADMINS),
            });
        };
        if !admin.has(S::SCOPE) {
            return Err(Problem::lacks_scope(admin.name(), S::SCOPE));
        }
        Ok(Self {
            name: Arc::clone(admin.name()),
            writes_webhooks: admin.has(Scope::WebhooksWrite),
            scope: PhantomData,
        })
    }
}

impl FromRequestParts<App> for MaybeAdmin {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Infallible> {
        let token = bearer(&parts.headers).ok().flatten();
        let admin = token.and_then(|token| app.credentials.admin(token));
        Ok(Self(admin.is_some_and(|admin| admin.has(Scope::Read))))
    }
}

impl<S: Requires> FromRequestParts<App> for BuyerOrAdmin<S> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let token = required(&parts.headers, BUYERS)?;
        let caller = if token.is_some_and(|token| app.credentials.admin(token).is_some()) {
            let admin = AdminWith::<S>::from_request_parts(parts, app).await?;
            Caller::Admin(admin.name)
        } else {
            Caller::Buyer(Buyer::from_request_parts(parts, app).await?.0)
        };
        Ok(Self {
            buyer: caller.buyer().cloned(),
            caller,
            scope: PhantomData,
        })
    }
}

/// What a caller without a token is answered.
const NO_CALLER: (&str, &str) = ("401", "`unauthorized`");

impl IntoResponses for Buyer {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problems(&[NO_CALLER])
    }
}

impl<S: Requires> IntoResponses for AdminWith<S> {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let scope = S::SCOPE;
        let lacks = format!("`forbidden`: a buyer, or an admin without the scope `{scope}`");
        problems(&[NO_CALLER, ("403", lacks.as_str())])
    }
}

impl<S: Requires> IntoResponses for BuyerOrAdmin<S> {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let lacks = format!("`forbidden`: an admin without the scope `{}`", S::SCOPE);
        problems(&[NO_CALLER, ("403", lacks.as_str())])
    }
}

/// The name in the path. A name that is not UTF-8 is treated like an unknown one.
pub(crate) struct Name(pub String);

impl FromRequestParts<App> for Name {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Self::Rejection> {
        let name = Path::<String>::from_request_parts(parts, app).await;
        Ok(Self(name.map(|Path(name)| name).unwrap_or_default()))
    }
}

/// The two names in a path, as [`Name`] is the one.
pub(crate) struct Names(pub String, pub String);

impl FromRequestParts<App> for Names {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Self::Rejection> {
        let names = Path::<(String, String)>::from_request_parts(parts, app).await;
        let (first, second) = names.map(|Path(names)| names).unwrap_or_default();
        Ok(Self(first, second))
    }
}

//! Who sees a page, and which forms are accepted.

use std::sync::Arc;

use axum::{
    extract::FromRequestParts,
    response::{IntoResponse, Redirect, Response},
};
use http::{HeaderMap, StatusCode, request::Parts};
use maud::{Markup, html};
use order::Scope;
use subtle::ConstantTimeEq;

use super::{Console, HOME, sessions::Session};
use crate::{cookies, layout::failure, origin};

/// Name of the cookie with the session's id.
pub(super) const SESSION: &str = "stockade-session";
/// Name of the field with the session's secret.
const FORM_SECRET: &str = "secret";

/// The caller is an admin who has logged in and may read.
#[derive(Clone)]
pub(super) struct Operator(Arc<Session>);

/// The session of a request, whatever its admin may do.
pub(super) fn session(console: &Console, headers: &HeaderMap) -> Option<Arc<Session>> {
    console.sessions.find(cookies::read(headers, SESSION)?)
}

impl FromRequestParts<Console> for Operator {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Self, Response> {
        let Some(session) = session(console, &parts.headers) else {
            return Err(Redirect::to("/console/login").into_response());
        };
        if !session.admin.has(Scope::Read) {
            return Err(lacks(Scope::Read));
        }
        Ok(Self(session))
    }
}

/// The page for an admin without this scope.
pub(super) fn lacks(scope: Scope) -> Response {
    let text = format!("This needs the scope {scope}, which you do not have.");
    failure(StatusCode::FORBIDDEN, &text, (HOME, "All items"))
}

/// The page for a form that no page of this session has made.
pub(super) fn foreign_form() -> Response {
    let text = "The form did not come from this session. Load the page again.";
    failure(StatusCode::FORBIDDEN, text, (HOME, "All items"))
}

impl Operator {
    pub(super) fn name(&self) -> &str {
        self.0.admin.name()
    }

    pub(super) fn has(&self, scope: Scope) -> bool {
        self.0.admin.has(scope)
    }

    /// Whether the session has ended since.
    pub(super) fn has_left(&self, console: &Console) -> bool {
        console.sessions.find(&self.0.id).is_none()
    }

    /// The hidden field that every form needs.
    pub(super) fn secret_field(&self) -> Markup {
        html! { input type="hidden" name=(FORM_SECRET) value=(self.0.form_secret); }
    }

    /// Whether a page of this session on this host has sent the form.
    pub(super) fn sent(&self, headers: &HeaderMap, secret: &str) -> bool {
        is_sent_by(&self.0, headers, secret)
    }
}

/// The same for a session whose admin may not read.
pub(super) fn is_sent_by(session: &Session, headers: &HeaderMap, secret: &str) -> bool {
    let expected = session.form_secret.as_bytes();
    origin::is_own(headers) && expected.ct_eq(secret.as_bytes()).into()
}

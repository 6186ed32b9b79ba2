//! Login and logout.

use axum::{
    Form,
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use http::{HeaderMap, StatusCode, header};
use maud::html;
use serde::Deserialize;

use super::{
    Console, HOME,
    access::{SESSION, foreign_form, is_sent_by, session},
    sessions::LIFETIME,
};
use crate::{cookies::Cookie, layout::page, origin};

const LOGIN: &str = "/console/login";

pub(super) async fn show() -> Response {
    form(StatusCode::OK, None)
}

fn form(status: StatusCode, refusal: Option<&str>) -> Response {
    let body = html! {
        main.narrow {
            h1 { "Console" }
            form.card method="post" action=(LOGIN) {
                @if let Some(refusal) = refusal { p.bad role="alert" { (refusal) } }
                // Password managers want a name for what they keep.
                input type="text" name="username" value="admin" autocomplete="username" hidden;
                p {
                    label for="token" { "Token of an admin" }
                    input #token type="password" name="token" required autofocus autocomplete="current-password";
                }
                button { "Log in" }
            }
            p.muted { "In the folder of the service, " code { "stockade token admin" } " prints a token." }
        }
    };
    (status, page("Log in", None, &body)).into_response()
}

#[derive(Deserialize)]
pub(super) struct Login {
    token: String,
}

pub(super) async fn login(
    State(console): State<Console>,
    headers: HeaderMap,
    Form(login): Form<Login>,
) -> Response {
    if !origin::is_own(&headers) {
        return form(
            StatusCode::FORBIDDEN,
            Some("The form did not come from this page. Try again."),
        );
    }
    let Some(admin) = console.credentials.admin(login.token.trim()) else {
        tracing::debug!("console: a login was refused");
        return form(StatusCode::UNAUTHORIZED, Some("No admin has this token."));
    };
    let session = console.sessions.start(admin.clone());
    tracing::info!(admin = %admin.name(), "console: an admin has logged in");
    with_cookie(&headers, &session.id, LIFETIME.as_secs(), HOME)
}

#[derive(Deserialize)]
pub(super) struct Logout {
    secret: String,
}

pub(super) async fn logout(
    State(console): State<Console>,
    headers: HeaderMap,
    Form(logout): Form<Logout>,
) -> Response {
    if !origin::is_own(&headers) {
        return foreign_form();
    }
    if let Some(session) = session(&console, &headers) {
        if !is_sent_by(&session, &headers, &logout.secret) {
            return foreign_form();
        }
        console.sessions.end(&session.id);
    }
    with_cookie(&headers, "", 0, LOGIN)
}

/// Leads to `page` and sets the cookie, or with 0 seconds removes it.
fn with_cookie(headers: &HeaderMap, value: &str, seconds: u64, page: &str) -> Response {
    let cookie = Cookie {
        name: SESSION,
        value,
        path: HOME,
        seconds,
        secure: origin::is_https(headers),
    };
    let mut response = Redirect::to(page).into_response();
    if let Some(value) = cookie.header() {
        response.headers_mut().insert(header::SET_COOKIE, value);
    }
    response
}

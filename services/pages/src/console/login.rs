//! Login and logout.

use std::{
    net::{IpAddr, Ipv6Addr},
    time::Instant,
};

use axum::{
    Extension, Form,
    extract::{FromRequest, Request, State},
    response::{IntoResponse, Redirect, Response},
};
use http::{HeaderMap, StatusCode, header};
use maud::html;
use order::ClientAddress;
use serde::Deserialize;

use super::{
    Console, HOME,
    access::{SESSION, foreign_form, is_sent_by, session},
    sessions::LIFETIME,
    throttle::Throttled,
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
    client: Option<Extension<ClientAddress>>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    // Before the body: a form that is refused by its headers is not read.
    if !origin::is_own(&headers) {
        return form(
            StatusCode::FORBIDDEN,
            Some("The form did not come from this page. Try again."),
        );
    }
    let Form(login) = match Form::<Login>::from_request(request, &console).await {
        Ok(login) => login,
        Err(refused) => return refused.into_response(),
    };
    // Callers that no server names count as one.
    let unnamed = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let address = client.map_or(unnamed, |Extension(client)| client.0);
    let compare = || console.credentials.admin(login.token.trim());
    let admin = match console.throttle.check(address, Instant::now(), compare) {
        Ok(Some(admin)) => admin,
        Ok(None) => {
            count("refused");
            tracing::debug!("console: a login was refused");
            return form(StatusCode::UNAUTHORIZED, Some("No admin has this token."));
        }
        Err(throttled) => {
            count("throttled");
            return too_many(&throttled);
        }
    };
    count("accepted");
    let session = console.sessions.start(admin.clone());
    tracing::info!(admin = %admin.name(), "console: an admin has logged in");
    with_cookie(&headers, &session.id, LIFETIME.as_secs(), HOME)
}

fn count(outcome: &'static str) {
    metrics::counter!("stockade_console_logins_total", "outcome" => outcome).increment(1);
}

fn too_many(throttled: &Throttled) -> Response {
    let seconds = throttled.retry_after();
    let refusal = format!("Too many logins were refused. Try again in {seconds} s.");
    let mut response = form(StatusCode::TOO_MANY_REQUESTS, Some(&refusal));
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, seconds.into());
    response
}

#[derive(Deserialize)]
pub(super) struct Logout {
    secret: String,
}

pub(super) async fn logout(
    State(console): State<Console>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    if !origin::is_own(&headers) {
        return foreign_form();
    }
    if let Some(session) = session(&console, &headers) {
        let Form(logout) = match Form::<Logout>::from_request(request, &console).await {
            Ok(logout) => logout,
            Err(refused) => return refused.into_response(),
        };
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

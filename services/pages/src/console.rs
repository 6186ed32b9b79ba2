//! The console: items, their segments and journals, live, and buttons that change them.
//!
//! An admin logs in with a token and gets a session. Every page needs the scope `read`; a button
//! needs the scope that its call of the API needs. A form that changes something carries the
//! session's secret and must come from this host.

mod access;
mod action;
mod actions;
mod failures;
mod funnel;
mod item;
mod login;
mod overview;
mod rates;
mod read;
mod sessions;
mod system;
mod throttle;

use std::sync::Arc;

use axum::{
    Router,
    routing::{get, post},
};
use maud::{Markup, html};
use order::{Credentials, Engine};
use tokio_util::sync::CancellationToken;

use crate::layout::protected;
use access::Operator;
use read::Reads;
use sessions::Sessions;
use throttle::Throttle;

/// Path of the first page.
const HOME: &str = "/console";

#[derive(Clone)]
struct Console(Arc<Shared>);

struct Shared {
    engine: Arc<Engine>,
    credentials: Arc<Credentials>,
    sessions: Sessions,
    throttle: Throttle,
    reads: Reads,
    stop: CancellationToken,
}

impl std::ops::Deref for Console {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// The console over `engine`, for the admins of `credentials`. Its event streams end at `stop`.
pub fn console_router(
    engine: Arc<Engine>,
    credentials: Arc<Credentials>,
    stop: CancellationToken,
) -> Router {
    let console = Console(Arc::new(Shared {
        reads: Reads::new(Arc::clone(&engine)),
        engine,
        credentials,
        sessions: Sessions::default(),
        throttle: Throttle::default(),
        stop,
    }));
    let routes = Router::new()
        .route(HOME, get(overview::show))
        .route("/console/events", get(overview::events))
        .route("/console/system", get(system::show))
        .route("/console/system/events", get(system::events))
        .route("/console/login", get(login::show).merge(post(login::login)))
        .route("/console/logout", post(login::logout))
        .route("/console/items/{item}", get(item::show))
        .route("/console/items/{item}/events", get(item::events))
        .route(
            "/console/items/{item}/{action}",
            get(actions::confirm).merge(post(actions::act)),
        );
    protected(routes).with_state(console)
}

/// The head of every page.
fn head(operator: &Operator) -> Markup {
    html! {
        header {
            nav aria-label="Console" { a href=(HOME) { "All items" } a href="/console/system" { "System" } }
            span.muted { "Logged in as " b #admin { (operator.name()) } }
            form method="post" action="/console/logout" {
                (operator.secret_field())
                button.plain { "Log out" }
            }
        }
    }
}

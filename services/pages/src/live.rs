//! Live parts of a page: elements with an id whose content an event stream replaces each second.

use std::{convert::Infallible, time::Duration};

use axum::response::{
    IntoResponse, Response,
    sse::{Event, Sse},
};
use futures::{StreamExt, stream};
use http::HeaderValue;
use maud::{Markup, html};
use serde_json::{Map, Value};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// Time between two events.
const PERIOD: Duration = Duration::from_secs(1);
/// The element that says whether the page is live.
const STATE: &str = "live-state";

/// What an event brings.
pub(crate) enum Update {
    /// New contents of elements.
    Parts(Parts),
    /// A store did not answer: the page keeps what it shows and says so.
    Unreadable,
    /// The viewer may see no more.
    End,
}

/// New contents, by the id of their element.
#[derive(Default)]
pub(crate) struct Parts(Map<String, Value>);

impl Parts {
    pub(crate) fn with(mut self, id: impl Into<String>, content: Markup) -> Self {
        self.0.insert(id.into(), content.into_string().into());
        self
    }
}

/// The element that says whether the page is live. Without JavaScript it is empty.
pub(crate) fn state() -> Markup {
    html! { p #(STATE) .muted role="status" {} }
}

fn event(update: Update) -> Option<Event> {
    let Parts(parts) = match update {
        Update::Parts(parts) => parts.with(STATE, html! { "Live" }),
        Update::Unreadable => Parts::default().with(
            STATE,
            html! { "A store does not answer. These numbers are not current." },
        ),
        Update::End => return None,
    };
    Some(Event::default().data(Value::Object(parts).to_string()))
}

/// A stream of updates until one of them ends it, or the service stops.
pub(crate) fn stream<F>(
    stop: CancellationToken,
    read: impl Fn() -> F + Send + Clone + 'static,
) -> Response
where
    F: Future<Output = Update> + Send + 'static,
{
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let events = stream::unfold((ticks, read), async |(mut ticks, read)| {
        ticks.tick().await;
        let event = event(read().await)?;
        Some((Ok::<_, Infallible>(event), (ticks, read)))
    });
    let mut response = Sse::new(events.take_until(stop.cancelled_owned())).into_response();
    // nginx would collect events before it passes them on.
    response
        .headers_mut()
        .insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

//! The API as the listener serves it: the router, and a way past it for placing one order.
//!
//! A sale consists of one kind of request. The router costs it two thirds of its allocations: it
//! copies a route, and boxes the body, the handler and the response. So
//! `POST /v1/items/{item}/orders` is recognized here and answered by the same functions; everything
//! else goes to the router, and so does any path that is not written in the plainest way.
//! `tests/it/direct.rs` compares both ways byte by byte.

use std::pin::Pin;

use axum::{
    Router,
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::Full;
use hyper::body::Body as HttpBody;
use tower::ServiceExt;

use super::{
    App, Problem,
    access::Buyer,
    body,
    orders::{self, OrderHeaders},
    text::content_length,
};
use crate::timer::{OwnTimer, Timer};

/// Routes, and the service behind them if it takes orders.
#[derive(Clone)]
pub struct Api {
    routes: Router,
    /// `None`: every request goes to the router.
    app: Option<App>,
}

impl From<Router> for Api {
    fn from(routes: Router) -> Self {
        Self { routes, app: None }
    }
}

impl From<Api> for Router {
    fn from(api: Api) -> Self {
        api.routes
    }
}

impl Api {
    pub(super) fn new(routes: Router, app: App) -> Self {
        let app = Some(app);
        Self { routes, app }
    }

    /// Adds routes. They must not replace that of orders.
    #[must_use]
    pub fn map(self, add: impl FnOnce(Router) -> Router) -> Self {
        Self {
            routes: add(self.routes),
            ..self
        }
    }

    /// The routes, without the way past them.
    pub fn routes(&self) -> &Router {
        &self.routes
    }

    /// Whether the request goes past the router. Such a request never holds up its thread.
    pub(crate) fn is_direct<B>(&self, request: &Request<B>) -> bool {
        self.app.is_some() && ordered_item(request.method(), request.uri().path()).is_some()
    }

    /// Answers one request.
    pub async fn answer<B>(&self, request: Request<B>) -> Response
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let response = self.answer_within(request, &OwnTimer).await;
        response.map(Body::from)
    }

    /// The same, with the timer of the request's connection.
    pub(crate) async fn answer_within<B>(
        &self,
        request: Request<B>,
        timer: &impl Timer,
    ) -> http::Response<Answer>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        match &self.app {
            Some(app) if ordered_item(request.method(), request.uri().path()).is_some() => {
                place(app, request, timer).await
            }
            _ => {
                let Ok(response) = self.routes.clone().oneshot(request.map(Body::new)).await;
                response.map(Answer::Any)
            }
        }
    }
}

/// The item that the request orders, if it is one for the way past the router.
fn ordered_item<'a>(method: &Method, path: &'a str) -> Option<&'a str> {
    if method != Method::POST {
        return None;
    }
    let item = path.strip_prefix("/v1/items/")?.strip_suffix("/orders")?;
    // Percent signs and slashes are for the router.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (!item.is_empty() && item.bytes().all(is_plain)).then_some(item)
}

async fn place<B: HttpBody<Data = Bytes>>(
    app: &App,
    request: Request<B>,
    timer: &impl Timer,
) -> http::Response<Answer> {
    let placed = try_place(app, request, timer).await;
    let mut response = match placed {
        Ok(placed) => placed.map(|body| Answer::Whole(body.into())),
        Err(problem) => problem.into_response().map(Answer::Any),
    };
    // As the router does, so that both ways write the same bytes.
    if let Some(length) = response.body().size_hint().exact() {
        let length = content_length(usize::try_from(length).unwrap_or(usize::MAX));
        response
            .headers_mut()
            .insert(header::CONTENT_LENGTH, length);
    }
    response
}

async fn try_place<B: HttpBody<Data = Bytes>>(
    app: &App,
    request: Request<B>,
    timer: &impl Timer,
) -> Result<http::Response<Bytes>, Problem> {
    let (parts, body) = request.into_parts();
    let Buyer(buyer) = Buyer::of(&parts, app)?;
    let item = ordered_item(&parts.method, parts.uri.path()).unwrap_or_default();
    let headers = OrderHeaders::of(&parts.headers);
    let body = body::read_whole(body, app.body_bytes).await?;
    orders::place_body(app, buyer, item, headers, &body, timer).await
}

/// The body of a response.
pub(crate) enum Answer {
    /// Not in a box.
    Whole(Full<Bytes>),
    /// What the router answers.
    Any(Body),
}

impl From<Answer> for Body {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Whole(body) => Self::new(body),
            Answer::Any(body) => body,
        }
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, axum::Error>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body)
                .poll_frame(context)
                .map_err(|never| match never {}),
            Self::Any(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Any(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Any(body) => body.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::ordered_item;

    #[test]
    fn only_the_plain_path_of_an_order_goes_past_the_router() {
        let item = |path| ordered_item(&Method::POST, path);
        assert_eq!(item("/v1/items/vase/orders"), Some("vase"));
        assert_eq!(item("/v1/items/A.b_c-9/orders"), Some("A.b_c-9"));
        for path in [
            "/v1/items//orders",
            "/v1/items/orders",
            "/v1/items/a/b/orders",
            "/v1/items/va%73e/orders",
            "/v1/items/vase/orders/",
            "/v1/items/vase/orders:batch",
            "/v1/items/v+e/orders",
            "//v1/items/vase/orders",
            "/V1/items/vase/orders",
        ] {
            assert_eq!(item(path), None, "{path}");
        }
        for method in [Method::GET, Method::HEAD, Method::PUT, Method::OPTIONS] {
            assert_eq!(ordered_item(&method, "/v1/items/vase/orders"), None);
        }
    }
}

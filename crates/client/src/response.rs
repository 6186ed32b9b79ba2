//! Responses, and what their status says about the outcome.

use std::collections::HashMap;

use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, ETAG, HeaderMap, RETRY_AFTER};
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::{Error, Problem, UnknownCause, problem::leaves_open};

const REPLAYED: &str = "idempotent-replayed";

/// A complete response.
#[derive(Clone, Debug)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// Whether the service had placed the order for an earlier request with this key.
    pub replayed: bool,
    /// Seconds that the service asks to wait before a repeat.
    pub retry_after: Option<u64>,
    /// The version of the item, which `If-Match` takes. Only admins receive it.
    pub version: Option<u64>,
    /// What the body is, as its sender says.
    pub content: Content,
    /// The body as it came.
    pub body: Bytes,
}

/// What a body is, by its `Content-Type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// `application/json`, which the service's successes have.
    Json,
    /// `application/problem+json`, which every problem of the service has. A `code` in other JSON
    /// is a gateway's.
    Problem,
    /// Anything else.
    #[default]
    Other,
}

impl Content {
    /// What this `Content-Type` says, without its parameters.
    fn of(value: &str) -> Self {
        let essence = value.split(';').next().unwrap_or_default().trim();
        if essence.eq_ignore_ascii_case("application/problem+json") {
            Self::Problem
        } else if essence.eq_ignore_ascii_case("application/json") {
            Self::Json
        } else {
            Self::Other
        }
    }
}

impl Response {
    pub(crate) async fn receive(response: reqwest::Response) -> reqwest::Result<Self> {
        let headers = response.headers();
        let (content, replayed, retry_after, version) = (
            text(headers, CONTENT_TYPE.as_str()).map_or(Content::Other, Content::of),
            text(headers, REPLAYED) == Some("true"),
            text(headers, RETRY_AFTER.as_str()).and_then(|seconds| seconds.parse().ok()),
            text(headers, ETAG.as_str()).and_then(version),
        );
        Ok(Self {
            status: response.status().as_u16(),
            replayed,
            retry_after,
            version,
            content,
            body: response.bytes().await?,
        })
    }

    /// The body, read as JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_slice(&self.body).map_err(|error| Error::Contract {
            status: self.status,
            violation: format!("the body is not the documented JSON: {error}"),
        })
    }

    /// The body, read as text.
    pub fn text(self) -> Result<String, Error> {
        String::from_utf8(self.body.into()).map_err(|_| Error::Contract {
            status: self.status,
            violation: "the body is not UTF-8".into(),
        })
    }

    /// The problem in the body, for a status that is no success.
    pub fn problem(&self) -> Problem {
        Problem::read(self)
    }

    /// Fails if the body of this success is not such as the API has, but the page of a proxy.
    pub(crate) fn of_the_service(&self) -> Result<(), Error> {
        let is_of_the_service = match self.status {
            204 => self.body.is_empty(),
            _ => serde_json::from_slice::<HashMap<String, IgnoredAny>>(&self.body).is_ok(),
        };
        is_of_the_service
            .then_some(())
            .ok_or_else(|| Error::Contract {
                status: self.status,
                violation: "the body is not the documented JSON".into(),
            })
    }

    /// The response if its status is a success.
    ///
    /// Other 4xx statuses are refusals of this attempt, by the service or by something before it.
    /// 408 and every 5xx status leave the outcome open.
    pub fn into_success(self) -> Result<Self, Error> {
        match self.status {
            200..=299 => Ok(self),
            status if leaves_open(status) => Err(Error::OutcomeUnknown {
                attempts: 1,
                cause: Box::new(UnknownCause::Problem(self.problem())),
            }),
            400..=499 => Err(Error::Refused(Box::new(self.problem()))),
            status => Err(Error::Contract {
                status,
                violation: "the API does not use this status".into(),
            }),
        }
    }
}

/// The version in an `ETag`. A proxy that compresses makes it weak (`W/"3"`) or adds the name of
/// its coding (`"3-gzip"`).
fn version(tag: &str) -> Option<u64> {
    let tag = tag.strip_prefix("W/").unwrap_or(tag).trim_matches('"');
    tag.split(['-', ';']).next()?.parse().ok()
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

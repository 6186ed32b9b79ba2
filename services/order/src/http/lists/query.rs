//! The parameters of a list, checked strictly: a misspelt filter must not list everything.

use std::collections::BTreeMap;

use axum::extract::{FromRequestParts, Query};
use domain::OrderState;
use http::{HeaderMap, header, request::Parts};
use utoipa::{
    IntoResponses,
    openapi::{RefOr, Response},
};

use super::cursor::{Cursors, Key};
use crate::http::{App, Problem, description::problems, problem::FieldError};

/// Rows of a page, unless the request names another number.
const LIMIT: usize = 100;
const LIMIT_MAX: usize = 1000;

/// How a list is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// One page, with the cursor of the next one.
    Json,
    /// The whole list, a header row first.
    Csv,
    /// The whole list, one JSON object on each line.
    Jsonl,
}

impl Format {
    pub(crate) const ALL: [Self; 3] = [Self::Json, Self::Csv, Self::Jsonl];

    /// The value of the parameter `format`.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Jsonl => "jsonl",
        }
    }

    /// Refuses a table for rows that do not fit into one, for this reason.
    pub(super) fn without_csv(self, reason: &str) -> Result<(), Problem> {
        if self == Self::Csv {
            let expected = format!("expected json or jsonl: {reason}");
            return Err(Problem::from(FieldError::new("format", expected)));
        }
        Ok(())
    }
}

/// The parameters as they came.
pub(crate) struct Parameters {
    pairs: Vec<(String, String)>,
    accepted: Option<Format>,
}

/// The parameters of a list with keys `K`.
pub(super) struct ListQuery<K> {
    /// The name of the list, which cursors are bound to.
    pub list: String,
    pub limit: usize,
    pub after: Option<K>,
    pub state: Option<OrderState>,
    pub format: Format,
}

impl FromRequestParts<App> for Parameters {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        let pairs = Query::try_from_uri(&parts.uri)
            .map_err(|_| Problem::invalid("query", "expected NAME=VALUE&..., percent-encoded"))?;
        Ok(Self {
            pairs: pairs.0,
            accepted: accepted(&parts.headers),
        })
    }
}

/// What every list answers, besides its rows.
impl IntoResponses for Parameters {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problems(&[("400", "`invalid_request`"), ("503", "`unavailable`")])
    }
}

/// The first media type of `Accept` that lists have.
fn accepted(headers: &HeaderMap) -> Option<Format> {
    let types = headers.get_all(header::ACCEPT).iter();
    let types = types
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    let mut types = types.map(|one| one.split(';').next().unwrap_or_default().trim());
    types.find_map(|one| match one {
        "text/csv" => Some(Format::Csv),
        "application/jsonl" | "application/x-ndjson" => Some(Format::Jsonl),
        "application/json" => Some(Format::Json),
        _ => None,
    })
}

impl Parameters {
    /// The parameters of `list`. Only lists of an item's orders have the parameter `state`.
    pub(super) fn read<K: Key>(
        self,
        cursors: &Cursors,
        list: impl Into<String>,
        has_state: bool,
    ) -> Result<ListQuery<K>, Problem> {
        let mut query = ListQuery {
            list: list.into(),
            limit: LIMIT,
            after: None,
            state: None,
            format: self.accepted.unwrap_or(Format::Json),
        };
        let (mut errors, mut seen) = (Vec::new(), Vec::new());
        for (name, value) in &self.pairs {
            let read = if seen.contains(&name) {
                Err("expected once".into())
            } else {
                query.set(cursors, has_state, name, value)
            };
            errors.extend(read.err().map(|detail| FieldError::new(name, detail)));
            seen.push(name);
        }
        match errors.is_empty() {
            true => Ok(query),
            false => Err(Problem::invalid_fields(errors)),
        }
    }
}

impl<K: Key> ListQuery<K> {
    fn set(
        &mut self,
        cursors: &Cursors,
        has_state: bool,
        name: &str,
        value: &str,
    ) -> Result<(), String> {
        match name {
            "limit" => self.limit = limit(value)?,
            // A reader that has no cursor yet may leave the parameter empty, as for events. A
            // filter may not be empty: one whose value was lost must not list everything.
            "after" if value.is_empty() => self.after = None,
            "after" => {
                let key = cursors.verify(&self.list, value);
                self.after =
                    Some(key.ok_or("expected the `next` of an earlier page of this list")?);
            }
            "format" => self.format = format(value)?,
            "state" if has_state => {
                let state = value.parse::<OrderState>();
                self.state = Some(state.map_err(|error| format!("expected {}", error.expected))?);
            }
            _ if has_state => return Err("expected limit, after, format or state".into()),
            _ => return Err("expected limit, after or format".into()),
        }
        Ok(())
    }
}

fn limit(value: &str) -> Result<usize, String> {
    let limit = value.parse().ok();
    limit
        .filter(|limit| (1..=LIMIT_MAX).contains(limit))
        .ok_or_else(|| format!("expected a whole number from 1 to {LIMIT_MAX}"))
}

fn format(value: &str) -> Result<Format, String> {
    let mut formats = Format::ALL.into_iter();
    let named = formats.find(|format| format.word() == value);
    named.ok_or_else(|| "expected json, csv or jsonl".into())
}

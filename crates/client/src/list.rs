//! Lists: pages of rows, and streams of all rows.

use futures::stream::{self, Stream, TryStreamExt};
use serde::Deserialize;

use crate::{Error, OrderState};

/// Rows that a stream of all rows reads at a time.
const STREAM_ROWS: u16 = 1000;

/// Which page of a list to read. The default is the first one, with the service's default length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageRequest {
    after: Option<Cursor>,
    limit: Option<u16>,
}

/// Where a page starts. Only the service can issue one, and it is valid for one list.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Cursor(String);

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Page<T> {
    /// The rows: as many as were asked for unless the list ends here. With a state there may be
    /// fewer, and at least one.
    pub data: Vec<T>,
    /// Where the next page starts. `None`: the list ends here.
    pub next: Option<Cursor>,
}

impl PageRequest {
    /// The page that starts at `next` of an earlier page. `None`: the first page.
    #[must_use]
    pub fn after(self, next: Option<Cursor>) -> Self {
        Self {
            after: next,
            ..self
        }
    }

    /// With at most this many rows, from 1 to 1000.
    #[must_use]
    pub fn limit(self, rows: u16) -> Self {
        Self {
            limit: Some(rows),
            ..self
        }
    }

    /// The query of the request. Cursors are base64url, which needs no escaping.
    pub(crate) fn query(&self, state: Option<OrderState>) -> String {
        let state = state.map(|state| format!("state={state}"));
        let limit = self.limit.map(|limit| format!("limit={limit}"));
        let after = self
            .after
            .as_ref()
            .map(|after| format!("after={}", after.0));
        let parameters: Vec<_> = [state, limit, after].into_iter().flatten().collect();
        match parameters.is_empty() {
            true => String::new(),
            false => format!("?{}", parameters.join("&")),
        }
    }
}

/// All rows of the list that `read` reads page by page. It ends with the first error.
pub(crate) fn all<T, F>(read: impl Fn(PageRequest) -> F) -> impl Stream<Item = Result<T, Error>>
where
    F: Future<Output = Result<Page<T>, Error>>,
{
    let first = PageRequest::default().limit(STREAM_ROWS);
    let pages = stream::try_unfold(Some(first.clone()), move |request| {
        let page = request.map(&read);
        let first = first.clone();
        async move {
            let Some(page) = page else { return Ok(None) };
            let Page { data, next } = page.await?;
            let rows = stream::iter(data.into_iter().map(Ok));
            Ok::<_, Error>(Some((rows, next.map(|next| first.after(Some(next))))))
        }
    });
    pages.try_flatten()
}

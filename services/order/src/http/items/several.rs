//! Several items in one read, for the pages of a shop that show many.

use axum::{
    Extension,
    extract::{FromRequestParts, Query, State},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use domain::ItemId;
use http::{header, request::Parts};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{
    super::{App, Problem, public_view::Read},
    CACHE_CONTROL, ItemBody,
};
use crate::{
    engine::{EngineError, ItemView},
    rate::PeerBucket,
};

/// Items that one request may name.
const IDS_MAX: usize = 100;

/// Several items.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct ItemsBody {
    /// The items, in the order of the request.
    #[schema(value_type = Vec<ItemBody>)]
    data: Vec<Box<RawValue>>,
    /// Names that no item has.
    unknown: Vec<String>,
    /// Items whose units could not be read now. The others are shown all the same.
    unavailable: Vec<String>,
}

/// The names of the parameter `ids`, each once, in their order.
pub(crate) struct Ids(Vec<String>);

impl FromRequestParts<App> for Ids {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
        let pairs = pairs.map(|pairs| pairs.0).unwrap_or_default();
        match pairs.as_slice() {
            [(name, ids)] if name == "ids" => Self::read(ids),
            _ => Err(expected_ids()),
        }
    }
}

impl Ids {
    fn read(text: &str) -> Result<Self, Problem> {
        let mut ids: Vec<String> = Vec::new();
        for id in text.split(',') {
            if ids.iter().any(|known| known == id) {
                continue;
            }
            if id.is_empty() || ids.len() == IDS_MAX {
                return Err(expected_ids());
            }
            ids.push(id.to_owned());
        }
        Ok(Self(ids))
    }
}

fn expected_ids() -> Problem {
    let expected = format!("expected the ids of 1 to {IDS_MAX} items, separated by commas, once");
    Problem::invalid("ids", expected)
}

/// Shows several items, as anyone sees them.
#[utoipa::path(get, path = "/v1/items:batch", operation_id = "getItems", tag = "buyers",
    params(("ids" = String, Query, description = "ids of 1 to 100 items, separated by commas", example = "vase,jar")),
    responses((status = 200, description = "the items, and the names that no item has", body = ItemsBody), (status = 400, description = "`invalid_request`", body = Problem),
        (status = 503, description = "`unavailable`: none of the items could be read", body = Problem)))]
pub(crate) async fn show_several(
    State(app): State<App>,
    peer: Option<Extension<PeerBucket>>,
    Ids(names): Ids,
) -> Result<Response, Problem> {
    let ids = names.iter().filter_map(|name| ItemId::new(name).ok());
    let ids: Vec<_> = ids.collect();
    // Each item costs what a request for it alone costs, unless its view is known.
    if let Some(Extension(peer)) = peer {
        peer.admit_lines(app.public_views.unread(&ids))?;
    }
    let mut views = views_of(&app, ids).await.into_iter();
    let (mut body, mut failed) = (ItemsBody::default(), None);
    for name in names {
        let view = match ItemId::new(&name) {
            Ok(_) => views.next().unwrap_or(Ok(None)),
            Err(_) => Ok(None),
        };
        match view {
            Ok(Some(view)) => body.data.push(raw(&view)?),
            Ok(None) => body.unknown.push(name),
            Err(problem) => {
                body.unavailable.push(name);
                failed = Some(problem);
            }
        }
    }
    match failed {
        Some(problem) if body.data.is_empty() && body.unknown.is_empty() => Err(problem),
        _ => {
            let headers = [(header::CACHE_CONTROL, CACHE_CONTROL)];
            Ok((headers, axum::Json(body)).into_response())
        }
    }
}

type View = Result<Option<Bytes>, Problem>;

/// The views of these items, in this order. One statement reads those that are not known.
async fn views_of(app: &App, ids: Vec<ItemId>) -> Vec<View> {
    let read = |missing: Vec<ItemId>| async move {
        let views = app.engine.view_items(&missing).await?;
        let written = |view: Result<_, EngineError>| view.map_err(Problem::from).and_then(written);
        let views = views.into_iter().map(|(id, view)| (id, written(view)));
        Ok::<Read, Problem>(views.collect())
    };
    app.public_views.get_all(ids, read).await
}

fn written(view: ItemView) -> View {
    let body = serde_json::to_vec(&ItemBody::new(view, None));
    body.map(|body| Some(Bytes::from(body)))
        .map_err(|_| Problem::internal())
}

fn raw(view: &Bytes) -> Result<Box<RawValue>, Problem> {
    serde_json::from_slice(view).map_err(|_| Problem::internal())
}

#[cfg(test)]
mod tests {
    use super::Ids;

    #[test]
    fn ids_are_read_once_each_and_in_their_order() {
        assert_eq!(Ids::read("b,a,b").ok().unwrap().0, ["b", "a"]);
        let names = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
        assert!(Ids::read(&names(100).join(",")).is_ok());
        for bad in [
            names(101).join(","),
            String::new(),
            "a,,b".into(),
            "a,".into(),
        ] {
            assert!(Ids::read(&bad).is_err(), "{bad}");
        }
    }
}

//! The pictures: swim lanes, and the stock over time.

use maud::{Markup, html};

use crate::timeline::Picture;

/// The lanes of a way.
pub(super) fn timeline(picture: &Picture) -> Markup {
    html! { p { (picture.lanes.len()) " lanes" } }
}

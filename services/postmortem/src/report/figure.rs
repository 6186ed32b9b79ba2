//! The picture of one way: its lanes, the units under them, what the marks mean, and the same once more as a list.
//!
//! Everything is laid out in the units of the drawing before anything is drawn, so that whatever is narrower than a line is drawn as one, and
//! no label stands on another.

mod axis;
mod bars;
mod curve;
mod draw;
mod flags;
mod harm;
mod labels;
mod lanes;
mod legend;
mod list;
mod marks;
mod scale;
mod text;

use maud::{Markup, html};

use self::{harm::Harms, lanes::Lanes, scale::Scale};
use crate::run::PlayedWay;

pub(super) use marks::definitions;

/// How wide a drawing is. It is scaled to the paper, and has a box to scroll in on a phone.
const WIDTH: f64 = 960.0;
/// What is left free on the right, for the last labels.
const RIGHT: f64 = 74.0;

/// The figure of a way. `id` is its own in the page.
pub(super) fn figure(id: &str, way: &PlayedWay) -> Markup {
    let layout = Layout::new(way);
    html! {
        figure {
            div.scroll.drawing tabindex="0" role="region" aria-label={ "Timeline: " (way.way.name) } { (draw::draw(id, way, &layout)) }
            figcaption { (legend::legend(&layout)) }
            (list::list(&layout))
        }
    }
}

/// Where everything is.
struct Layout<'a> {
    scale: Scale,
    harms: Harms<'a>,
    lanes: Lanes<'a>,
    curve: Option<curve::Curve>,
}

impl<'a> Layout<'a> {
    fn new(way: &'a PlayedWay) -> Self {
        let picture = &way.picture;
        let scale = Scale::new(picture, lanes::gutter(&picture.lanes), WIDTH - RIGHT);
        let harms = Harms::new(picture, &scale, way.evidence.oversold > 0);
        let lanes = Lanes::new(picture, &scale, harms.height());
        let curve = curve::Curve::new(way, &scale, lanes.bottom());
        Self {
            scale,
            harms,
            lanes,
            curve,
        }
    }

    /// Where the axis is.
    fn bottom(&self) -> f64 {
        self.curve
            .as_ref()
            .map_or(self.lanes.bottom(), curve::Curve::bottom)
    }
}

//! The figure of a variant: its swim lanes, the units below them, a legend, and the same as a list.
//!
//! The layout is computed in the units of the drawing before anything is drawn. Bars narrower than
//! a line are merged, and labels do not overlap.

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
use crate::run::VariantRun;

pub(super) use marks::definitions;

/// Width of a drawing. The page scales it, and a phone scrolls it in a box.
const WIDTH: f64 = 960.0;
/// Margin on the right, for the last labels.
const RIGHT: f64 = 74.0;

/// Returns the figure of a variant. `id` is unique in the page.
pub(super) fn figure(id: &str, variant: &VariantRun) -> Markup {
    let layout = Layout::new(variant);
    html! {
        figure {
            div.scroll.drawing tabindex="0" role="region" aria-label={ "Timeline: " (variant.variant.name) } { (draw::draw(id, variant, &layout)) }
            figcaption { (legend::legend(&layout)) }
            (list::list(&layout))
        }
    }
}

/// Positions of all parts of the drawing.
struct Layout<'a> {
    scale: Scale,
    harms: Harms<'a>,
    lanes: Lanes<'a>,
    curve: Option<curve::Curve>,
}

impl<'a> Layout<'a> {
    fn new(variant: &'a VariantRun) -> Self {
        let picture = &variant.picture;
        let scale = Scale::new(picture, lanes::gutter(&picture.lanes), WIDTH - RIGHT);
        let harms = Harms::new(picture, &scale, variant.measurements.oversold > 0);
        let lanes = Lanes::new(picture, &scale, harms.height());
        let curve = curve::Curve::new(variant, &scale, lanes.bottom());
        Self {
            scale,
            harms,
            lanes,
            curve,
        }
    }

    /// Returns the position of the axis.
    fn bottom(&self) -> f64 {
        self.curve
            .as_ref()
            .map_or(self.lanes.bottom(), curve::Curve::bottom)
    }
}

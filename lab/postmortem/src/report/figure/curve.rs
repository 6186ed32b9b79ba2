//! The units below the lanes: units sold and units left, against the stock.
//!
//! The curve is not interpolated. Units left are drawn where they were read. Units sold are drawn
//! only if the recorded sales are the counted sales.

use maud::{Markup, html};

use super::{
    WIDTH,
    scale::Scale,
    text::{self, n},
};
use crate::{
    run::VariantRun,
    timeline::{Event, Picture},
};

/// Height of the drawing, and the margin above and below.
const HEIGHT: f64 = 92.0;
const AIR: f64 = 20.0;
/// Font size of the numbers.
const NUMBER: f64 = 11.0;
/// Smallest distance between two labels.
const LINE: f64 = 13.0;
/// Differences smaller than this are invisible.
const SEEN: f64 = 0.5;

/// A step function: from each point to the right, then to the next.
type Steps = Vec<(f64, f64)>;

/// Layout of the curve.
pub(super) struct Curve {
    top: f64,
    left: f64,
    right: f64,
    least: f64,
    most: f64,
    exist: Option<f64>,
    sold: Option<Steps>,
    stock: Option<Steps>,
}

impl Curve {
    /// Returns none if there is nothing to draw.
    pub fn new(variant: &VariantRun, scale: &Scale, top: f64) -> Option<Self> {
        let picture = &variant.picture;
        let exist = (variant.measurements.stock > 0).then_some(units(variant.measurements.stock));
        let sold = sales(picture, variant.measurements.units_sold).map(|sales| {
            let steps = sales
                .into_iter()
                .zip(1..)
                .map(|(at, sold)| (scale.x(at), f64::from(sold)));
            [(scale.left, 0.0)]
                .into_iter()
                .chain(steps)
                .collect::<Steps>()
        });
        let stock = (!picture.stock.is_empty()).then(|| readings(picture, scale));
        if sold.is_none() && stock.is_none() {
            return None;
        }
        let values = || {
            [&sold, &stock]
                .into_iter()
                .flatten()
                .flatten()
                .map(|point| point.1)
                .chain(exist)
                .chain([0.0])
        };
        let (least, most) = (values().fold(0.0, f64::min), values().fold(1.0, f64::max));
        Some(Self {
            top,
            left: scale.left,
            right: scale.right,
            least,
            most,
            exist,
            sold,
            stock,
        })
    }

    /// Returns the lower edge.
    pub fn bottom(&self) -> f64 {
        self.top + AIR + HEIGHT + AIR * 0.5
    }

    fn y(&self, units: f64) -> f64 {
        self.top + AIR + HEIGHT * (1.0 - (units - self.least) / (self.most - self.least))
    }

    /// Draws the curve.
    pub fn draw(&self) -> Markup {
        html! {
            g.curve {
                line.between x1="0" x2=(WIDTH) y1=(n(self.top)) y2=(n(self.top)) {}
                text.lane x=(n(self.left - self.numbers_width() - 14.0)) y=(n(self.top + AIR + HEIGHT / 2.0)) text-anchor="end" dominant-baseline="central" { "units" }
                @for units in self.numbers() {
                    line.grid x1=(n(self.left)) x2=(n(self.right)) y1=(n(self.y(units))) y2=(n(self.y(units))) {}
                    text.tick x=(n(self.left - 4.0)) y=(n(self.y(units))) text-anchor="end" dominant-baseline="central" { (format!("{units:.0}")) }
                }
                @if let (Some(sold), Some(exist)) = (&self.sold, self.exist) { (self.beyond(sold, exist)) }
                @if let Some(exist) = self.exist { line.exist x1=(n(self.left)) x2=(n(self.right)) y1=(n(self.y(exist))) y2=(n(self.y(exist))) {} }
                @if let Some(stock) = &self.stock { path.stock d=(self.path(stock)) {} }
                @if let Some(sold) = &self.sold { path.sold d=(self.path(sold)) {} }
                @for (y, class, label) in self.labels() {
                    text class={ "end " (class) } x=(n(self.right + 5.0)) y=(n(y)) dominant-baseline="central" { (label) }
                }
            }
        }
    }

    /// Returns the width of the numbers at the left edge.
    fn numbers_width(&self) -> f64 {
        self.numbers()
            .into_iter()
            .map(|units| text::width(&format!("{units:.0}"), NUMBER))
            .fold(0.0, f64::max)
    }

    /// Returns the numbers at the left edge: the ends of the scale.
    fn numbers(&self) -> Vec<f64> {
        let far = (self.most - self.least) * 0.15;
        let ends = [self.exist.unwrap_or(self.most), self.least]
            .into_iter()
            .filter(|end| end.abs() > far);
        [0.0].into_iter().chain(ends).collect()
    }

    /// Draws the units that were sold beyond the stock.
    fn beyond(&self, sold: &Steps, exist: f64) -> Markup {
        let beyond: Steps = sold
            .iter()
            .copied()
            .filter(|point| point.1 > exist)
            .collect();
        let ground = n(self.y(exist));
        html! {
            @if let Some((first, _)) = beyond.first() {
                path.beyond d={ "M" (n(*first)) " " (ground) (self.stairs(&beyond)) "V" (ground) "Z" } {}
            }
        }
    }

    fn path(&self, steps: &Steps) -> String {
        let (x, units) = steps.first().copied().unwrap_or_default();
        format!("M{} {}{}", n(x), n(self.y(units)), self.stairs(steps))
    }

    /// Returns the path from the first step to the right edge, without invisible steps.
    fn stairs(&self, steps: &Steps) -> String {
        let mut stairs = String::new();
        let mut last = (f64::NEG_INFINITY, f64::INFINITY);
        for (count, (x, units)) in steps.iter().enumerate() {
            let y = self.y(*units);
            if count == 0 {
                stairs = format!("V{}", n(y));
            } else if x - last.0 >= SEEN || (y - last.1).abs() >= SEEN || count + 1 == steps.len() {
                stairs.push_str(&format!("H{}V{}", n(*x), n(y)));
            } else {
                continue;
            }
            last = (*x, y);
        }
        format!("{stairs}H{}", n(self.right))
    }

    /// Returns the labels at the right edge, without overlaps.
    fn labels(&self) -> Vec<(f64, &'static str, String)> {
        let last = |steps: &Option<Steps>| {
            steps
                .as_ref()
                .and_then(|steps| steps.last())
                .map(|point| point.1)
        };
        let mut labels = Vec::new();
        if let Some(sold) = last(&self.sold) {
            let class = if self.exist.is_some_and(|exist| sold > exist) {
                "harm"
            } else {
                "sold"
            };
            labels.push((self.y(sold), class, format!("{sold:.0} sold")));
        }
        if let Some(exist) = self.exist {
            labels.push((self.y(exist), "exist", format!("{exist:.0} exist")));
        }
        if let Some(stock) = last(&self.stock) {
            labels.push((self.y(stock), "stock", format!("{stock:.0} left")));
        }
        labels.sort_by(|a, b| a.0.total_cmp(&b.0));
        for at in 1..labels.len() {
            labels[at].0 = labels[at].0.max(labels[at - 1].0 + LINE);
        }
        labels
    }
}

/// Returns the times of the sales if the recorded ones are the counted ones. In some cases a harm
/// is a sale, in others it is not.
fn sales(picture: &Picture, units_sold: u64) -> Option<Vec<f64>> {
    let when = |events: &[Event]| {
        let moments = picture
            .moments
            .iter()
            .filter(|moment| events.contains(&moment.event));
        let mut when: Vec<_> = moments.map(|moment| moment.at).collect();
        when.sort_by(f64::total_cmp);
        (!when.is_empty() && when.len() as u64 == units_sold).then_some(when)
    };
    when(&[Event::Sale, Event::Harm]).or_else(|| when(&[Event::Sale]))
}

fn readings(picture: &Picture, scale: &Scale) -> Steps {
    let mut readings = picture.stock.clone();
    readings.sort_by(|a, b| a.0.total_cmp(&b.0));
    readings
        .into_iter()
        .map(|(at, left)| (scale.x(at), signed(left)))
        .collect()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a drawing of a few hundred units"
)]
fn units(units: u64) -> f64 {
    units as f64
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a drawing of a few hundred units"
)]
fn signed(units: i64) -> f64 {
    units as f64
}

//! Draws curves as a self-contained SVG for light and dark pages: charts, in groups below each
//! other.

use std::fmt::Write as _;

mod axis;
mod panel;

pub use axis::round_above;
pub use panel::{Curve, Panel};

const WIDTH: f64 = panel::LARGE.0;
/// Above the first group.
const TITLE_HEIGHT: f64 = 38.0;
/// Above the charts of a group that has a heading.
const HEADING_HEIGHT: f64 = 32.0;
const LEFT: f64 = 16.0;
/// Of the colours of the curves of a chart.
const CLASSES: [&str; 3] = ["one", "two", "three"];

const STYLE: &str = "<style>
svg{background:#fff;font:13px system-ui,sans-serif}text{fill:#333}.title{font-size:16px;font-weight:600}.heading{font-size:14px;font-weight:600}
.name,.tick,.label{font-size:12px}.grid{stroke:#ddd}.axis{stroke:#999}.curve{fill:none;stroke-width:2}.fromnone{stroke-dasharray:2 4}
.curve.one{stroke:#1b7f5c}.curve.two{stroke:#1f5fbf}.curve.three{stroke:#8a4bbf}
.fill.one{fill:#1b7f5c}.fill.two{fill:#1f5fbf}.fill.three{fill:#8a4bbf}
.bound{stroke:#b3261e;stroke-dasharray:6 4}.boundtext{fill:#b3261e}.best{stroke:#777;stroke-dasharray:2 3}
@media(prefers-color-scheme:dark){svg{background:#15181c}text{fill:#d8dbe0}.grid{stroke:#333840}.axis{stroke:#777}
.curve.one{stroke:#5fd3a8}.curve.two{stroke:#7fb0ff}.curve.three{stroke:#c99bff}
.fill.one{fill:#5fd3a8}.fill.two{fill:#7fb0ff}.fill.three{fill:#c99bff}
.bound{stroke:#ff8a80}.boundtext{fill:#ff8a80}.best{stroke:#999}}
</style>";

/// Reads a figure of a step, if it was measured.
pub type Read<T> = fn(&T) -> Option<f64>;
/// Name of a curve, and its figures.
pub type Named<T> = (&'static str, Read<T>);

/// Charts that belong together: small ones, or a large one.
#[derive(Debug)]
pub struct Group {
    /// Stands above them.
    pub heading: Option<&'static str>,
    /// At least one.
    pub panels: Vec<Panel>,
}

/// Draws groups below a title.
pub fn draw(title: &str, groups: &[Group]) -> String {
    let label: String = groups.iter().map(Group::label).collect();
    let mut height = TITLE_HEIGHT;
    let drawn = groups.iter().map(|group| group.draw(&mut height));
    let drawn: String = drawn.collect();
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{title}{label}">{STYLE}<text class="title" x="{LEFT}" y="26">{title}</text>{drawn}</svg>
"#
    )
}

/// The curves of figures that were measured, three at most. Each keeps its colour if others were
/// not. `size` is what a step has of that which grows.
pub fn curves<'a, T: 'a>(
    steps: impl Iterator<Item = &'a T> + Clone,
    size: impl Fn(&T) -> u64,
    named: &[Named<T>],
) -> Vec<Curve> {
    let curve = |(class, &(name, read)): (&'static str, &Named<T>)| {
        let points = steps.clone().filter_map(|step| {
            let figure = read(step).filter(|figure| figure.is_finite())?;
            Some((size(step) as f64, figure))
        });
        Curve {
            class,
            name,
            points: points.collect(),
        }
    };
    let curves = CLASSES.into_iter().zip(named).map(curve);
    curves.filter(|curve| !curve.points.is_empty()).collect()
}

impl Group {
    /// What a reader who does not see the charts is told.
    fn label(&self) -> String {
        let panels: Vec<_> = self.panels.iter().map(Panel::label).collect();
        let heading = self.heading.map(|heading| format!("{heading}: "));
        format!(". {}{}", heading.unwrap_or_default(), panels.join("; "))
    }

    /// Draws the charts from `top` on, which then is where they end.
    fn draw(&self, top: &mut f64) -> String {
        let mut group = String::new();
        if let Some(heading) = self.heading {
            let y = *top + 20.0;
            let _ = write!(
                group,
                r#"<text class="heading" x="{LEFT}" y="{y}">{heading}</text>"#
            );
            *top += HEADING_HEIGHT;
        }
        for row in self.panels.chunks(2) {
            let (mut left, y) = (0.0, *top);
            for panel in row {
                let (drawn, (width, height)) = (panel.draw(), panel.size());
                let _ = write!(group, r#"<g transform="translate({left} {y})">{drawn}</g>"#);
                left += width;
                *top = y + height;
            }
        }
        group
    }
}

#[cfg(test)]
mod tests {
    use super::{Named, curves};

    const NAMED: [Named<f64>; 3] = [
        ("first", |_| None),
        ("second", |step| Some(*step)),
        ("third", |step| Some(1.0 / *step)),
    ];

    #[test]
    fn what_was_not_measured_has_no_point_and_no_curve() {
        let curves = curves([0.0, 2.0, 4.0].iter(), |_| 7, &NAMED);
        let names: Vec<_> = curves
            .iter()
            .map(|curve| (curve.class, curve.name, curve.points.len()))
            .collect();
        assert_eq!(names, [("two", "second", 3), ("three", "third", 2)]);
    }
}

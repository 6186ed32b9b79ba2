//! A chart: its curves against what grows.

use std::fmt::Write as _;

use super::axis::Axis;
use crate::number::{grouped, short};

const LEFT: f64 = 58.0;
const TOP: f64 = 32.0;
const TITLE_LEFT: f64 = 16.0;
/// Of a line of text.
const NAME_HEIGHT: f64 = 15.0;
/// Of a digit below the axis, with room for fonts that are wide.
const DIGIT_WIDTH: f64 = 7.0;

/// Width and height of a chart with its names and numbers. Two small ones stand beside each other.
const SMALL: (f64, f64) = (420.0, 246.0);
pub(super) const LARGE: (f64, f64) = (840.0, 440.0);

/// A chart.
#[derive(Debug, Default)]
pub struct Panel {
    /// What the curves are.
    pub title: &'static str,
    /// Unit of their points.
    pub unit: &'static str,
    /// What grows.
    pub grows: String,
    /// The curves.
    pub curves: Vec<Curve>,
    /// Whether it is as wide as the page.
    pub is_large: bool,
    /// Whether the axis of what grows is linear whatever it spans.
    pub is_linear: bool,
    /// What no figure should exceed.
    pub bound: Option<f64>,
    /// How many there may be: one of the points.
    pub best: Option<f64>,
}

/// A curve, which has at least one point.
#[derive(Debug)]
pub struct Curve {
    /// Class of its colour.
    pub class: &'static str,
    /// Stands beside its end.
    pub name: &'static str,
    /// How many there were, and what was measured.
    pub points: Vec<(f64, f64)>,
}

/// Maps numbers to the page.
struct Scale {
    /// End of the axis, before the names of the curves.
    right: f64,
    /// Place of the axis, above its numbers.
    bottom: f64,
    across: Axis,
    up: Axis,
}

impl Scale {
    /// The scale of a chart that has points at these numbers.
    fn new(panel: &Panel, numbers: &[f64]) -> Self {
        let points = panel.curves.iter().flat_map(|curve| &curve.points);
        let figures = points.map(|(_, figure)| *figure).chain(panel.bound);
        let axis = if panel.is_linear {
            Axis::linear
        } else {
            Axis::of
        };
        let (width, height) = panel.size();
        Self {
            right: width - 94.0,
            bottom: height - 58.0,
            across: axis(numbers),
            up: Axis::of(&figures.collect::<Vec<_>>()).rounded(),
        }
    }

    fn x(&self, number: f64) -> f64 {
        LEFT + self.across.share(number) * (self.right - LEFT)
    }

    fn y(&self, figure: f64) -> f64 {
        self.bottom - self.up.share(figure) * (self.bottom - TOP)
    }

    /// How many of the first points are a zero that is set apart.
    fn apart(&self, points: &[(f64, f64)]) -> usize {
        let is_zero = |(number, _): &&(f64, f64)| *number <= 0.0;
        let zeros = points.iter().take_while(is_zero).count();
        if self.across.sets_zero_apart() {
            zeros
        } else {
            0
        }
    }
}

impl Panel {
    pub(super) fn size(&self) -> (f64, f64) {
        if self.is_large { LARGE } else { SMALL }
    }

    /// What the chart shows.
    pub(super) fn label(&self) -> String {
        format!("{}, {}, by {}", self.title, self.unit, self.grows)
    }

    /// Draws it at the origin.
    pub(super) fn draw(&self) -> String {
        let numbers = self.numbers();
        let scale = Scale::new(self, &numbers);
        let curves = self.curves.iter();
        let curves = curves.map(|curve| self.draw_curve(&scale, curve));
        [
            self.titles(&scale),
            figures(&scale),
            axis(&scale, numbers),
            self.bounds(&scale),
            curves.collect(),
            self.names(&scale),
        ]
        .concat()
    }

    /// How many there were at each step.
    fn numbers(&self) -> Vec<f64> {
        let points = self.curves.iter().flat_map(|curve| &curve.points);
        let mut numbers: Vec<_> = points.map(|(number, _)| *number).collect();
        numbers.sort_by(f64::total_cmp);
        numbers.dedup();
        numbers
    }

    fn titles(&self, scale: &Scale) -> String {
        let (title, unit, grows) = (self.title, self.unit, &self.grows);
        let (middle, below) = (f64::midpoint(LEFT, scale.right), scale.bottom + 37.0);
        format!(r#"<text x="{TITLE_LEFT}" y="16">{title}, {unit}</text>"#)
            + &text("label", (middle, below), "middle", grows)
    }

    /// Lines of what is demanded, and of what was found.
    fn bounds(&self, scale: &Scale) -> String {
        let mut drawn = String::new();
        if let Some(bound) = self.bound {
            let y = scale.y(bound);
            drawn.push_str(&level("bound", scale, y));
            let name = format!("{} {}", short(bound), self.unit);
            drawn.push_str(&text("boundtext", (LEFT + 4.0, y - 5.0), "start", &name));
        }
        if let Some(best) = self.best {
            let (x, bottom) = (scale.x(best), scale.bottom);
            let _ = write!(
                drawn,
                r#"<line class="best" x1="{x:.1}" x2="{x:.1}" y1="{TOP}" y2="{bottom}"/>"#
            );
        }
        drawn
    }

    fn draw_curve(&self, scale: &Scale, curve: &Curve) -> String {
        let places = curve.points.iter();
        let places: Vec<_> = places
            .map(|(number, figure)| (scale.x(*number), scale.y(*figure)))
            .collect();
        let apart = scale.apart(&curve.points);
        lines(curve.class, &places, apart) + &self.dots(curve, &places)
    }

    /// A dot for each point, which tells its numbers.
    fn dots(&self, curve: &Curve, places: &[(f64, f64)]) -> String {
        let (class, name) = (curve.class, curve.name);
        let (unit, grows) = (self.unit, &self.grows);
        let mut drawn = String::new();
        for ((x, y), (number, figure)) in places.iter().zip(&curve.points) {
            let (many, figure) = (count(*number), short(*figure));
            let _ = write!(
                drawn,
                r#"<circle class="fill {class}" cx="{x:.1}" cy="{y:.1}" r="3"><title>{name}: {figure} {unit}; {grows}: {many}</title></circle>"#
            );
        }
        drawn
    }

    /// Names each curve beside its end.
    fn names(&self, scale: &Scale) -> String {
        let end = |curve: &Curve| {
            let last = curve.points.last();
            last.map_or(scale.bottom, |(_, figure)| scale.y(*figure))
        };
        let mut curves: Vec<_> = self
            .curves
            .iter()
            .map(|curve| (end(curve), curve))
            .collect();
        curves.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let mut ends: Vec<_> = curves.iter().map(|(end, _)| *end).collect();
        move_apart(&mut ends, scale.bottom);
        let mut drawn = String::new();
        for ((_, curve), y) in curves.into_iter().zip(ends) {
            let class = format!("name fill {}", curve.class);
            let place = (scale.right + 10.0, y + 4.0);
            drawn.push_str(&text(&class, place, "start", curve.name));
        }
        drawn
    }
}

/// Lines of the figures.
fn figures(scale: &Scale) -> String {
    let mut drawn = String::new();
    for figure in scale.up.marks() {
        let y = scale.y(figure);
        drawn.push_str(&level("grid", scale, y));
        drawn.push_str(&text("tick", (LEFT - 8.0, y + 4.0), "end", &short(figure)));
    }
    drawn
}

/// A line across the chart.
fn level(class: &str, scale: &Scale, y: f64) -> String {
    let right = scale.right;
    format!(r#"<line class="{class}" x1="{LEFT}" x2="{right}" y1="{y:.1}" y2="{y:.1}"/>"#)
}

/// The axis with the numbers, which are sorted. One that would overlap the one before it is left
/// out.
fn axis(scale: &Scale, numbers: Vec<f64>) -> String {
    let bottom = scale.bottom;
    let mut drawn = level("axis", scale, bottom);
    let mut free_from = 0.0;
    for number in numbers {
        let (x, name) = (scale.x(number), count(number));
        let _ = write!(
            drawn,
            r#"<line class="axis" x1="{x:.1}" x2="{x:.1}" y1="{bottom}" y2="{}"/>"#,
            bottom + 5.0
        );
        let half = name.len() as f64 * DIGIT_WIDTH / 2.0;
        if x - half >= free_from {
            drawn.push_str(&text("tick", (x, bottom + 18.0), "middle", &name));
            free_from = x + half;
        }
    }
    drawn
}

/// The line of a curve, dotted from the first places, which are apart.
fn lines(class: &str, places: &[(f64, f64)], apart: usize) -> String {
    let solid = line(&format!("curve {class}"), &places[apart..]);
    if apart == 0 {
        return solid;
    }
    let dotted = &places[..places.len().min(apart + 1)];
    solid + &line(&format!("curve fromnone {class}"), dotted)
}

fn line(class: &str, places: &[(f64, f64)]) -> String {
    let places: Vec<_> = places
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    format!(
        r#"<polyline class="{class}" points="{}"/>"#,
        places.join(" ")
    )
}

fn text(class: &str, (x, y): (f64, f64), anchor: &str, text: &str) -> String {
    format!(r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#)
}

/// Moves names that would overlap: down, and up again if that is below the chart. They are sorted.
fn move_apart(ends: &mut [f64], bottom: f64) {
    let mut least = TOP;
    for end in ends.iter_mut() {
        *end = f64::max(*end, least);
        least = *end + NAME_HEIGHT;
    }
    let mut most = bottom;
    for end in ends.iter_mut().rev() {
        *end = f64::min(*end, most);
        most = *end - NAME_HEIGHT;
    }
}

/// A number of things.
fn count(number: f64) -> String {
    if number > 0.0 {
        grouped(number)
    } else {
        "none".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::{Curve, NAME_HEIGHT, Panel, Scale, TOP, move_apart};

    fn panel(points: &[(f64, f64)]) -> Panel {
        let curve = Curve {
            class: "one",
            name: "p50",
            points: points.to_vec(),
        };
        Panel {
            title: "An order",
            unit: "ms",
            grows: "orders".into(),
            curves: vec![curve],
            ..Panel::default()
        }
    }

    fn drawn(points: &[(f64, f64)]) -> String {
        panel(points).draw()
    }

    #[test]
    fn a_point_names_its_figure_and_its_step() {
        let drawn = drawn(&[(0.0, 2.9), (25_000.0, 1_234.6)]);
        for tip in ["p50: 2.9 ms; orders: none", "p50: 1,235 ms; orders: 25,000"] {
            assert!(drawn.contains(tip), "{drawn}");
        }
    }

    #[test]
    fn only_a_zero_before_logarithms_is_set_apart() {
        let linear = drawn(&[(0.0, 1.0), (5.0, 1.0)]);
        assert!(!linear.contains("fromnone"), "{linear}");
        let logarithmic = drawn(&[(0.0, 1.0), (5.0, 1.0), (50.0, 1.0)]);
        assert_eq!(logarithmic.matches("fromnone").count(), 1, "{logarithmic}");
        assert!(logarithmic.contains(">none</text>"), "{logarithmic}");
    }

    #[test]
    fn numbers_do_not_overlap() {
        let drawn = drawn(&[(999_000.0, 1.0), (1_000_000.0, 1.0)]);
        assert!(drawn.contains(">999,000</text>"), "{drawn}");
        assert!(!drawn.contains(">1,000,000</text>"), "{drawn}");
    }

    #[test]
    fn names_do_not_overlap_and_stay_beside_the_chart() {
        let bottom = Scale::new(&Panel::default(), &[]).bottom;
        let samples = [[TOP; 3], [bottom; 3], [TOP, TOP + 1.0, bottom]];
        for mut ends in samples {
            move_apart(&mut ends, bottom);
            assert!(ends[0] >= TOP && ends[2] <= bottom, "{ends:?}");
            let is_apart = |pair: &[f64]| pair[1] - pair[0] > NAME_HEIGHT - 1e-9;
            assert!(ends.windows(2).all(is_apart), "{ends:?}");
        }
    }

    #[test]
    fn slower_is_higher_and_more_is_further_right() {
        for is_linear in [false, true] {
            let points = [(500.0, 4.0), (8_000.0, 4_000.0)];
            let panel = Panel {
                is_linear,
                bound: Some(50.0),
                ..panel(&points)
            };
            let scale = Scale::new(&panel, &panel.numbers());
            assert!(scale.y(4_000.0) < scale.y(50.0) && scale.y(50.0) < scale.y(4.0));
            assert!(scale.x(500.0) < scale.x(8_000.0));
        }
    }
}

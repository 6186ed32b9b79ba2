//! A small chart: its curves against what grows.

use std::fmt::Write as _;

use super::axis::Axis;

/// Of a chart with its names and numbers.
pub const WIDTH: f64 = 420.0;
/// The same.
pub const HEIGHT: f64 = 246.0;

const LEFT: f64 = 58.0;
const RIGHT: f64 = WIDTH - 94.0;
const TOP: f64 = 32.0;
const BOTTOM: f64 = HEIGHT - 58.0;
const TITLE_LEFT: f64 = 16.0;
/// Of a line of text.
const NAME_HEIGHT: f64 = 15.0;
/// Of a digit below the axis, with room for fonts that are wide.
const DIGIT_WIDTH: f64 = 7.0;

/// A chart.
#[derive(Debug)]
pub struct Panel {
    /// What the curves are.
    pub title: &'static str,
    /// Unit of their points.
    pub unit: &'static str,
    /// What grows.
    pub grows: String,
    /// At least one.
    pub curves: Vec<Curve>,
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
    across: Axis,
    up: Axis,
}

impl Scale {
    fn x(&self, number: f64) -> f64 {
        LEFT + self.across.share(number) * (RIGHT - LEFT)
    }

    fn y(&self, number: f64) -> f64 {
        BOTTOM - self.up.share(number) * (BOTTOM - TOP)
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
    /// What the chart shows.
    pub fn label(&self) -> String {
        format!("{}, {}, by {}", self.title, self.unit, self.grows)
    }

    /// Draws it at the origin.
    pub fn draw(&self) -> String {
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let across: Vec<_> = points().map(|(number, _)| *number).collect();
        let up: Vec<_> = points().map(|(_, figure)| *figure).collect();
        let scale = Scale {
            across: Axis::of(&across),
            up: Axis::of(&up).rounded(),
        };
        let curves = self
            .curves
            .iter()
            .map(|curve| self.draw_curve(&scale, curve));
        [
            self.titles(),
            figures(&scale),
            numbers(&scale, across),
            curves.collect(),
            self.names(&scale),
        ]
        .concat()
    }

    fn titles(&self) -> String {
        let (title, unit, grows) = (self.title, self.unit, &self.grows);
        let (middle, below) = (f64::midpoint(LEFT, RIGHT), BOTTOM + 37.0);
        format!(r#"<text x="{TITLE_LEFT}" y="16">{title}, {unit}</text>"#)
            + &text("label", (middle, below), "middle", grows)
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
        let end = |curve: &Curve| curve.points.last().map_or(BOTTOM, |(_, y)| scale.y(*y));
        let mut curves: Vec<_> = self
            .curves
            .iter()
            .map(|curve| (end(curve), curve))
            .collect();
        curves.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let mut ends: Vec<_> = curves.iter().map(|(end, _)| *end).collect();
        move_apart(&mut ends);
        let mut drawn = String::new();
        for ((_, curve), y) in curves.into_iter().zip(ends) {
            let class = format!("name fill {}", curve.class);
            drawn.push_str(&text(&class, (RIGHT + 10.0, y + 4.0), "start", curve.name));
        }
        drawn
    }
}

/// Lines of the figures.
fn figures(scale: &Scale) -> String {
    let mut drawn = String::new();
    for figure in scale.up.marks() {
        let y = scale.y(figure);
        let _ = write!(
            drawn,
            r#"<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{y:.1}" y2="{y:.1}"/>"#
        );
        drawn.push_str(&text("tick", (LEFT - 8.0, y + 4.0), "end", &short(figure)));
    }
    drawn
}

/// How many there were at each step. A number that would overlap the one before it is left out.
fn numbers(scale: &Scale, mut numbers: Vec<f64>) -> String {
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    let mut drawn =
        format!(r#"<line class="axis" x1="{LEFT}" x2="{RIGHT}" y1="{BOTTOM}" y2="{BOTTOM}"/>"#);
    let mut free_from = 0.0;
    for number in numbers {
        let (x, name) = (scale.x(number), count(number));
        let _ = write!(
            drawn,
            r#"<line class="axis" x1="{x:.1}" x2="{x:.1}" y1="{BOTTOM}" y2="{}"/>"#,
            BOTTOM + 5.0
        );
        let half = name.len() as f64 * DIGIT_WIDTH / 2.0;
        if x - half >= free_from {
            drawn.push_str(&text("tick", (x, BOTTOM + 18.0), "middle", &name));
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
fn move_apart(ends: &mut [f64]) {
    let mut least = TOP;
    for end in ends.iter_mut() {
        *end = f64::max(*end, least);
        least = *end + NAME_HEIGHT;
    }
    let mut most = BOTTOM;
    for end in ends.iter_mut().rev() {
        *end = f64::min(*end, most);
        most = *end - NAME_HEIGHT;
    }
}

/// A number of things, with a comma before each three digits.
fn count(number: f64) -> String {
    if number <= 0.0 {
        return "none".to_owned();
    }
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A figure with the digits that matter.
fn short(figure: f64) -> String {
    if figure >= 1000.0 {
        return count(figure);
    }
    let parts = if figure >= 100.0 {
        1.0
    } else if figure >= 1.0 {
        10.0
    } else {
        1000.0
    };
    ((figure * parts).round() / parts).to_string()
}

#[cfg(test)]
mod tests {
    use super::{BOTTOM, Curve, NAME_HEIGHT, Panel, TOP, count, move_apart, short};

    fn panel(points: &[(f64, f64)]) -> String {
        let curve = Curve {
            class: "one",
            name: "p50",
            points: points.to_vec(),
        };
        let panel = Panel {
            title: "An order",
            unit: "ms",
            grows: "orders".into(),
            curves: vec![curve],
        };
        panel.draw()
    }

    #[test]
    fn a_point_names_its_figure_and_its_step() {
        let drawn = panel(&[(0.0, 2.9), (25_000.0, 1_234.6)]);
        for tip in ["p50: 2.9 ms; orders: none", "p50: 1,235 ms; orders: 25,000"] {
            assert!(drawn.contains(tip), "{drawn}");
        }
    }

    #[test]
    fn only_a_zero_before_logarithms_is_set_apart() {
        let linear = panel(&[(0.0, 1.0), (5.0, 1.0)]);
        assert!(!linear.contains("fromnone"), "{linear}");
        let logarithmic = panel(&[(0.0, 1.0), (5.0, 1.0), (50.0, 1.0)]);
        assert_eq!(logarithmic.matches("fromnone").count(), 1, "{logarithmic}");
        assert!(logarithmic.contains(">none</text>"), "{logarithmic}");
    }

    #[test]
    fn numbers_do_not_overlap() {
        let drawn = panel(&[(999_000.0, 1.0), (1_000_000.0, 1.0)]);
        assert!(drawn.contains(">999,000</text>"), "{drawn}");
        assert!(!drawn.contains(">1,000,000</text>"), "{drawn}");
    }

    #[test]
    fn names_do_not_overlap_and_stay_beside_the_chart() {
        let samples = [[TOP; 3], [BOTTOM; 3], [TOP, TOP + 1.0, BOTTOM]];
        for mut ends in samples {
            move_apart(&mut ends);
            assert!(ends[0] >= TOP && ends[2] <= BOTTOM, "{ends:?}");
            let is_apart = |pair: &[f64]| pair[1] - pair[0] > NAME_HEIGHT - 1e-9;
            assert!(ends.windows(2).all(is_apart), "{ends:?}");
        }
    }

    #[test]
    fn numbers_and_figures_are_short() {
        let counts = [0.0, 999.0, 25_000.0, 2_500_000.0].map(count);
        assert_eq!(counts, ["none", "999", "25,000", "2,500,000"]);
        let figures = [0.0, 3.0 * 0.2, 4.56, 75.0, 123.4, 1_200.0].map(short);
        assert_eq!(figures, ["0", "0.6", "4.6", "75", "123", "1,200"]);
    }
}

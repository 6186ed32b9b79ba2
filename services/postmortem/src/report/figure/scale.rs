//! Where a moment is on the page. Time begins when the first thing was noted: starting servers is no part of the story.

use crate::timeline::{Picture, Span};

/// As many numbers as an axis has at most.
const TICKS_AT_MOST: f64 = 10.0;

/// Less than this is stretched: an axis needs some length.
const SHORTEST: f64 = 0.5;

/// From the first thing that was noted to the last.
pub(super) struct Scale {
    from: f64,
    to: f64,
    /// Where the first is.
    pub left: f64,
    /// Where the last is.
    pub right: f64,
}

impl Scale {
    pub fn new(picture: &Picture, left: f64, right: f64) -> Self {
        let moments = picture.moments.iter().map(|moment| moment.at).chain(picture.stock.iter().map(|stock| stock.0));
        let begins = picture.spans.iter().map(|span| span.from);
        let ends = picture.spans.iter().map(|span| end(picture, span));
        let first = begins.chain(moments.clone()).fold(f64::INFINITY, f64::min);
        let last = ends.chain(moments).fold(f64::NEG_INFINITY, f64::max);
        let (from, to) = if first.is_finite() { (first, last) } else { (0.0, picture.end) };
        // A moment on the very edge would be half a mark.
        let room = (to - from) * 0.01;
        Self { from, to: (to + room).max(from + SHORTEST), left, right }
    }

    /// Where it is.
    pub fn x(&self, at: f64) -> f64 {
        self.left + (at - self.from).clamp(0.0, self.to - self.from) / (self.to - self.from) * (self.right - self.left)
    }

    /// Seconds of the story since the first.
    pub fn since(&self, at: f64) -> f64 {
        (at - self.from).max(0.0)
    }

    /// How long all of it took.
    pub fn length(&self) -> f64 {
        self.to - self.from
    }

    /// Round numbers, and where they are.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        let step = round_step(self.length() / TICKS_AT_MOST);
        let digits = usize::from(step < 1.0) + usize::from(step < 0.1);
        let ticks = (0..).map(|n| f64::from(n) * step).take_while(|at| *at <= self.length());
        ticks.map(|at| (self.x(self.from + at), format!("{at:.digits$}"))).collect()
    }
}

/// When it ended; with the way, if it never did.
pub(super) fn end(picture: &Picture, span: &Span) -> f64 {
    span.to.unwrap_or(picture.end).max(span.from)
}

/// The next of 1, 2, 5, 10, 20, ...
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|step| *step >= least * 0.999).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::{Scale, round_step};
    use crate::timeline::{Event, Moment, Picture};

    #[test]
    fn steps_are_round() {
        for (least, step) in [(0.9, 1.0), (1.0, 1.0), (1.1, 2.0), (4.8, 5.0), (6.0, 10.0), (12.0, 20.0)] {
            assert!((round_step(least) - step).abs() < 1e-9, "{least}");
        }
        assert!((round_step(0.03) - 0.05).abs() < 1e-9);
    }

    #[test]
    fn time_begins_with_the_first_thing_noted_and_a_single_one_has_a_place() {
        let moment = Moment { lane: 0, event: Event::Note, label: String::new(), at: 7.0 };
        let picture = Picture { lanes: vec!["a".into()], moments: vec![moment], end: 9.0, ..Picture::default() };
        let scale = Scale::new(&picture, 100.0, 900.0);
        assert!((scale.x(7.0) - 100.0).abs() < 1e-9 && scale.since(7.0).abs() < 1e-9);
        assert!(scale.ticks().len() >= 2);
        assert!(Scale::new(&Picture::default(), 100.0, 900.0).x(3.0).is_finite());
    }
}

//! The time scale. It starts at the first recorded event, because the start of servers is not part
//! of the scenario.
//!
//! Long stretches without an event are compressed and marked. In many scenarios a process sleeps
//! for half a minute, and then everything happens within one second.

use reporting::chart::round_above;

use crate::timeline::{Picture, Span};

/// Smallest distance between two numbers of the axis.
const BETWEEN: f64 = 72.0;
/// Numbers at a smaller distance would touch.
const NUMBER: f64 = 34.0;
/// Shorter runs are stretched, because an axis needs some length.
const SHORTEST: f64 = 0.5;
/// A stretch without an event is compressed if it is a larger part of the whole than this,
const QUIET: f64 = 0.4;
/// except for this part of the whole at its ends,
const EDGE: f64 = 0.01;
/// to this part of the width.
const SHORTENED: f64 = 0.25;

/// The scale from the first recorded event to the last.
pub(super) struct Scale {
    pieces: Vec<Piece>,
    /// Position of the first event.
    pub left: f64,
    /// Position of the last event.
    pub right: f64,
}

/// A stretch of time with a constant scale.
struct Piece {
    from: f64,
    to: f64,
    left: f64,
    right: f64,
    is_short: bool,
}

impl Scale {
    pub fn new(picture: &Picture, left: f64, right: f64) -> Self {
        let events = events(picture);
        let (from, last) = (
            events.first().copied().unwrap_or(0.0),
            events.last().copied().unwrap_or(picture.end),
        );
        // An event at the very edge would be cut in half.
        let to = (last + (last - from) * 0.01).max(from + SHORTEST);
        let quiet = quiet(&events, to - from);
        Self {
            pieces: pieces(from, to, &quiet, left, right),
            left,
            right,
        }
    }

    /// Returns the position of a time.
    pub fn x(&self, at: f64) -> f64 {
        let piece = self
            .pieces
            .iter()
            .find(|piece| at <= piece.to)
            .or(self.pieces.last());
        piece.map_or(self.left, |piece| {
            piece.left
                + (at.clamp(piece.from, piece.to) - piece.from) / (piece.to - piece.from)
                    * (piece.right - piece.left)
        })
    }

    /// Returns the seconds of scenario time since the first event.
    pub fn since(&self, at: f64) -> f64 {
        (at - self.from()).max(0.0)
    }

    /// Returns the length of the whole.
    pub fn length(&self) -> f64 {
        self.pieces.last().map_or(0.0, |piece| piece.to) - self.from()
    }

    /// Returns the compressed stretches: begin, end, and length in seconds.
    pub fn shortened(&self) -> impl Iterator<Item = (f64, f64, f64)> {
        self.pieces
            .iter()
            .filter(|piece| piece.is_short)
            .map(|piece| (piece.left, piece.right, piece.to - piece.from))
    }

    /// Returns round numbers and their positions.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        let drawn = || self.pieces.iter().filter(|piece| !piece.is_short);
        let seconds: f64 = drawn().map(|piece| piece.to - piece.from).sum();
        let width: f64 = drawn().map(|piece| piece.right - piece.left).sum();
        // What is a hair more than a round number counts as it.
        let step = round_above(seconds / width * BETWEEN * 0.999);
        let digits = usize::from(step < 1.0) + usize::from(step < 0.1);
        let mut ticks: Vec<(f64, String)> = Vec::new();
        for piece in drawn() {
            let first = (self.since(piece.from) / step - 1e-6).ceil() * step;
            let at = (0..)
                .map(|n| first + f64::from(n) * step)
                .take_while(|at| *at <= self.since(piece.to));
            for (x, label) in at.map(|at| (self.x(self.from() + at), format!("{at:.digits$}"))) {
                if ticks.last().is_none_or(|last| x - last.0 >= NUMBER) {
                    ticks.push((x, label));
                }
            }
        }
        ticks
    }

    fn from(&self) -> f64 {
        self.pieces.first().map_or(0.0, |piece| piece.from)
    }
}

/// Returns all times at which an activity begins or ends or an event occurs, in order.
fn events(picture: &Picture) -> Vec<f64> {
    let spans = picture.spans.iter().flat_map(|span| {
        let ends = end(picture, span);
        [
            span.from,
            ends,
            span.valid_until
                .map_or(ends, |until| until.clamp(span.from, ends)),
        ]
    });
    let moments = picture.moments.iter().map(|moment| moment.at);
    let mut events: Vec<_> = spans
        .chain(moments)
        .chain(picture.stock.iter().map(|stock| stock.0))
        .collect();
    events.sort_by(f64::total_cmp);
    events
}

fn quiet(events: &[f64], length: f64) -> Vec<(f64, f64)> {
    let edge = length * EDGE;
    let pairs = events
        .windows(2)
        .filter(|pair| pair[1] - pair[0] > length * QUIET);
    pairs.map(|pair| (pair[0] + edge, pair[1] - edge)).collect()
}

fn pieces(from: f64, to: f64, quiet: &[(f64, f64)], left: f64, right: f64) -> Vec<Piece> {
    let short = (right - left) * SHORTENED;
    let shortened: f64 = quiet.iter().map(|(from, to)| to - from).sum();
    #[expect(clippy::cast_precision_loss, reason = "two at most")]
    let pixels = ((right - left) - short * quiet.len() as f64) / ((to - from) - shortened);
    let mut pieces = Vec::new();
    let mut add = |from: f64, to: f64, is_short: bool| {
        let left = pieces.last().map_or(left, |piece: &Piece| piece.right);
        let width = if is_short {
            short
        } else {
            (to - from) * pixels
        };
        pieces.push(Piece {
            from,
            to,
            left,
            right: left + width,
            is_short,
        });
    };
    let mut begin = from;
    for (quiet_from, quiet_to) in quiet {
        add(begin, *quiet_from, false);
        add(*quiet_from, *quiet_to, true);
        begin = *quiet_to;
    }
    add(begin, to, false);
    pieces
}

/// Returns the end of an activity, or of the run if it never ended.
pub(super) fn end(picture: &Picture, span: &Span) -> f64 {
    span.to.unwrap_or(picture.end).max(span.from)
}

#[cfg(test)]
mod tests {
    use super::Scale;
    use crate::timeline::{Event, Moment, Picture};

    fn at(times: &[f64]) -> Picture {
        let moments = times
            .iter()
            .map(|at| Moment {
                lane: 0,
                event: Event::Note,
                label: String::new(),
                at: *at,
            })
            .collect();
        Picture {
            lanes: vec!["a".into()],
            moments,
            end: 99.0,
            ..Picture::default()
        }
    }

    #[test]
    fn the_scale_starts_at_the_first_event_and_a_single_event_has_a_position() {
        let scale = Scale::new(&at(&[7.0]), 100.0, 900.0);
        assert!((scale.x(7.0) - 100.0).abs() < 1e-9 && scale.since(7.0).abs() < 1e-9);
        assert!(scale.ticks().len() >= 2);
        assert!(
            Scale::new(&Picture::default(), 100.0, 900.0)
                .x(3.0)
                .is_finite()
        );
    }

    #[test]
    fn only_long_stretches_without_events_are_compressed() {
        let even: Vec<_> = (0..11).map(f64::from).collect();
        let scale = Scale::new(&at(&even), 0.0, 1000.0);
        assert_eq!(scale.shortened().count(), 0);
        assert!((scale.x(5.0) - 1000.0 * 5.0 / 10.1).abs() < 1e-6);

        let scale = Scale::new(&at(&[0.0, 1.0, 29.0, 30.0]), 0.0, 1000.0);
        let (from, to, seconds) = scale.shortened().next().unwrap();
        assert!(
            (to - from - 250.0).abs() < 1e-6 && (25.0..28.0).contains(&seconds),
            "{from} {to} {seconds}"
        );
        assert!(
            scale.x(1.0) < from && scale.x(29.0) > to,
            "a compressed stretch has no events"
        );
        assert!(scale.x(30.0) - scale.x(29.0) > 200.0 && scale.x(99.0) <= 1000.0);
        let ticks = scale.ticks();
        assert!(
            ticks.windows(2).all(|pair| pair[1].0 - pair[0].0 >= 34.0),
            "{ticks:?}"
        );
        assert!(
            ticks
                .iter()
                .all(|(x, _)| *x <= from + 1e-6 || *x >= to - 1e-6),
            "{ticks:?}"
        );
    }
}

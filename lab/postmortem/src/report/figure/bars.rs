//! The activities of an actor as bars. Adjacent bars that are thinner than a line are merged, and
//! overlapping bars are stacked.

use super::{
    scale::{Scale, end},
    text,
};
use crate::timeline::{Doing, Picture, Span};

/// Bars thinner than this can be merged.
const THIN: f64 = 3.0;
/// Bars with a smaller gap look like one.
const MERGE_GAP: f64 = 2.0;
/// Largest number of stacked bars in a lane.
const TRACKS: usize = 4;

/// A bar, or several merged bars.
pub(super) struct Bar<'a> {
    pub doing: Doing,
    pub label: &'a str,
    /// Begin and end in the drawing.
    pub from: f64,
    pub to: f64,
    /// End of the lease in the drawing, if it is before the end of the bar.
    pub over: Option<f64>,
    /// Row in the lane.
    pub track: usize,
    /// Number of merged bars.
    pub times: usize,
    /// Begin and end in seconds of scenario time.
    pub begins: f64,
    pub ends: f64,
    lease_out: Option<f64>,
}

impl Bar<'_> {
    /// Returns the description of the bar.
    pub fn description(&self) -> String {
        let what = match (self.label, self.times) {
            (_, 2..) => format!("{} {} times", word(self.doing), self.times),
            ("", _) => word(self.doing).to_owned(),
            (label, _) => format!("{}: {label}", word(self.doing)),
        };
        match self.lease_out {
            Some(at) if self.over.is_some() => {
                format!("{what}; its lease expired at {}", text::seconds(at))
            }
            _ => what,
        }
    }

    /// Returns the time of the bar as text.
    pub fn when(&self) -> String {
        format!("{:.1}\u{2013}{}", self.begins, text::seconds(self.ends))
    }
}

/// Returns the word for an activity.
pub(super) const fn word(doing: Doing) -> &'static str {
    match doing {
        Doing::Holding => "inside",
        Doing::Waiting => "waits",
        Doing::Stalled => "stalls",
        Doing::Working => "works",
        Doing::Down => "down",
    }
}

/// Returns the bars of a lane. Those of a lock are in the first row if there is room.
pub(super) fn of_lane<'a>(picture: &'a Picture, lane: usize, scale: &Scale) -> Vec<Bar<'a>> {
    let mut bars = Vec::new();
    for doing in [
        Doing::Holding,
        Doing::Down,
        Doing::Stalled,
        Doing::Waiting,
        Doing::Working,
    ] {
        let mut spans: Vec<_> = picture
            .spans
            .iter()
            .filter(|span| span.lane == lane && span.doing == doing)
            .collect();
        spans.sort_by(|a, b| a.from.total_cmp(&b.from));
        bars.extend(runs(
            spans.into_iter().map(|span| bar(picture, span, scale)),
        ));
    }
    lay(&mut bars);
    bars
}

fn bar<'a>(picture: &Picture, span: &'a Span, scale: &Scale) -> Bar<'a> {
    let ends = end(picture, span);
    let lease_out = span.valid_until.filter(|until| *until < ends);
    Bar {
        doing: span.doing,
        label: &span.label,
        from: scale.x(span.from),
        to: scale.x(ends),
        over: lease_out.map(|at| scale.x(at.max(span.from))),
        track: 0,
        times: 1,
        begins: scale.since(span.from),
        ends: scale.since(ends),
        lease_out: lease_out.map(|at| scale.since(at)),
    }
}

fn runs<'a>(bars: impl Iterator<Item = Bar<'a>>) -> Vec<Bar<'a>> {
    let mut runs: Vec<Bar<'_>> = Vec::new();
    for bar in bars {
        match runs.last_mut() {
            Some(run) if joins(run, &bar) => {
                run.times += 1;
                (run.to, run.ends) = (run.to.max(bar.to), run.ends.max(bar.ends));
            }
            _ => runs.push(bar),
        }
    }
    runs
}

/// Returns whether two bars are merged. Both must be thin, and a bar whose lease expired is never
/// merged, because it matters to the scenario.
fn joins(run: &Bar<'_>, bar: &Bar<'_>) -> bool {
    let thin = |bar: &Bar<'_>| bar.to - bar.from < THIN && bar.over.is_none();
    (run.times > 1 || thin(run)) && thin(bar) && bar.from - run.to < MERGE_GAP
}

fn lay(bars: &mut [Bar<'_>]) {
    let mut taken: Vec<Vec<(f64, f64)>> = Vec::new();
    for bar in bars {
        let is_free = |track: &Vec<(f64, f64)>| {
            track
                .iter()
                .all(|(from, to)| bar.to <= from + MERGE_GAP || bar.from >= to - MERGE_GAP)
        };
        bar.track = taken
            .iter()
            .position(is_free)
            .unwrap_or(taken.len())
            .min(TRACKS - 1);
        if bar.track == taken.len() {
            taken.push(Vec::new());
        }
        taken[bar.track].push((bar.from, bar.to));
    }
}

#[cfg(test)]
mod tests {
    use super::{super::scale::Scale, Bar, of_lane};
    use crate::timeline::{Doing, Picture, Span};

    fn span(doing: Doing, from: f64, to: f64, valid_until: Option<f64>) -> Span {
        Span {
            lane: 0,
            doing,
            label: "x".into(),
            from,
            to: Some(to),
            valid_until,
        }
    }

    fn bars(spans: Vec<Span>) -> Vec<(Doing, usize, usize, bool)> {
        // Reads over the whole time, so that no stretch is compressed.
        let stock = (0..=10).map(|n| (f64::from(n) * 10.0, 1)).collect();
        let picture = Picture {
            lanes: vec!["a".into()],
            spans,
            stock,
            end: 100.0,
            ..Picture::default()
        };
        let scale = Scale::new(&picture, 0.0, 1000.0);
        let shape = |bar: &Bar<'_>| (bar.doing, bar.track, bar.times, bar.over.is_some());
        of_lane(&picture, 0, &scale).iter().map(shape).collect()
    }

    #[test]
    fn overlapping_bars_are_stacked_and_consecutive_ones_are_not() {
        let spans = vec![
            span(Doing::Waiting, 0.0, 10.0, None),
            span(Doing::Holding, 10.0, 60.0, Some(20.0)),
            span(Doing::Stalled, 30.0, 50.0, None),
        ];
        assert_eq!(
            bars(spans),
            [
                (Doing::Holding, 0, 1, true),
                (Doing::Stalled, 1, 1, false),
                (Doing::Waiting, 0, 1, false)
            ]
        );
    }

    #[test]
    fn thin_bars_are_merged_unless_their_lease_expired() {
        let mut spans: Vec<_> = (0..50)
            .map(|n| {
                span(
                    Doing::Holding,
                    f64::from(n) * 0.2,
                    f64::from(n) * 0.2 + 0.1,
                    Some(99.0),
                )
            })
            .collect();
        spans.push(span(Doing::Holding, 10.0, 10.1, Some(10.05)));
        spans.push(span(Doing::Holding, 90.0, 100.0, Some(99.0)));
        assert_eq!(
            bars(spans),
            [
                (Doing::Holding, 0, 50, false),
                (Doing::Holding, 0, 1, true),
                (Doing::Holding, 0, 1, true)
            ]
        );
    }
}

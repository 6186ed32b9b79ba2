//! The positions and heights of the swim lanes.

use super::{
    RIGHT, WIDTH,
    bars::{self, Bar},
    flags::{self, Flag},
    labels::Rows,
    scale::Scale,
    text,
};
use crate::timeline::Picture;

/// Font size of the names.
pub(super) const NAME: f64 = 12.0;
/// Height of a row of labels.
pub(super) const ROW: f64 = 15.0;
/// Height of a bar, and of a row of bars.
pub(super) const BAR: f64 = 16.0;
const TRACK: f64 = 19.0;
/// Margin above and below.
const AIR: f64 = 7.0;

/// Swim lane of one actor.
pub(super) struct Lane<'a> {
    pub name: &'a str,
    pub bars: Vec<Bar<'a>>,
    pub flags: Vec<Flag<'a>>,
    /// Upper edge and height.
    pub top: f64,
    pub height: f64,
    rows: usize,
}

impl Lane<'_> {
    /// Returns the upper edge of a row of bars.
    pub fn track(&self, track: usize) -> f64 {
        self.top + AIR + ROW * index(self.rows) + TRACK * index(track)
    }

    /// Returns the middle of a row of labels.
    pub fn row(&self, row: usize) -> f64 {
        self.track(0) - ROW * (index(row) + 0.5)
    }

    /// Returns the middle of the bars, where the name is.
    pub fn middle(&self) -> f64 {
        (self.track(0) + self.top + self.height - AIR) / 2.0
    }
}

/// All swim lanes.
pub(super) struct Lanes<'a> {
    pub lanes: Vec<Lane<'a>>,
    pub top: f64,
}

impl<'a> Lanes<'a> {
    pub fn new(picture: &'a Picture, scale: &Scale, top: f64) -> Self {
        let mut below = top;
        let mut lanes = Vec::new();
        for (n, name) in picture.lanes.iter().enumerate() {
            let lane = lane(picture, n, name, scale, below);
            below += lane.height;
            lanes.push(lane);
        }
        Self { lanes, top }
    }

    /// Returns the lower edge.
    pub fn bottom(&self) -> f64 {
        self.lanes
            .last()
            .map_or(self.top, |lane| lane.top + lane.height)
    }
}

fn lane<'a>(picture: &'a Picture, n: usize, name: &'a str, scale: &Scale, top: f64) -> Lane<'a> {
    let bars = bars::of_lane(picture, n, scale);
    let mut rows = Rows::new(scale.left - 10.0, WIDTH - RIGHT * 0.1);
    let flags = flags::of_lane(picture, n, scale, &mut rows);
    let tracks = bars.iter().map(|bar| bar.track + 1).max().unwrap_or(1);
    let height = AIR * 2.0 + ROW * index(rows.used()) + TRACK * index(tracks) - (TRACK - BAR);
    Lane {
        name,
        bars,
        flags,
        top,
        height,
        rows: rows.used(),
    }
}

/// Returns the width of the names.
pub(super) fn gutter(names: &[String]) -> f64 {
    let widest = names
        .iter()
        .map(|name| text::width(name, NAME))
        .fold(0.0, f64::max);
    (widest + 22.0).clamp(84.0, 176.0)
}

#[expect(clippy::cast_precision_loss, reason = "a handful of rows")]
fn index(n: usize) -> f64 {
    n as f64
}

//! The moments of harm: a line over all lanes, and what was done at its head.

use super::{
    RIGHT, WIDTH,
    flags::{Flag, stand, together},
    labels::Rows,
    scale::Scale,
    text,
};
use crate::timeline::{Event, Picture};

/// Size of the labels.
pub(super) const SIZE: f64 = 11.5;
/// Height of a row of labels.
const ROW: f64 = 16.0;
/// Air above the lanes.
const AIR: f64 = 8.0;
/// No more rows than these.
const ROWS: usize = 4;
/// Bold letters are so much wider.
const BOLD: f64 = 1.08;
/// Harm nearer than this is told at one line.
const NEAR: f64 = 5.0;

/// All of it.
pub(super) struct Harms<'a> {
    /// In the order of time.
    pub flags: Vec<Flag<'a>>,
    rows: usize,
}

impl<'a> Harms<'a> {
    /// `units`: it was done by selling what there was not.
    pub fn new(picture: &'a Picture, scale: &Scale, units: bool) -> Self {
        let word = if units { "oversold" } else { "harm" };
        let mut rows = Rows::new(scale.left - 10.0, WIDTH - RIGHT * 0.1);
        let mut flags = together(picture, |moment| moment.event == Event::Harm, scale, NEAR);
        stand(
            &mut flags,
            |flag| texts(flag, word),
            SIZE * BOLD,
            ROWS,
            &mut rows,
        );
        Self {
            flags,
            rows: rows.used(),
        }
    }

    /// What they need above the lanes.
    pub fn height(&self) -> f64 {
        AIR + ROW * self.rows()
    }

    /// The middle of a row.
    pub fn row(&self, row: usize) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a handful of rows")]
        let row = row as f64;
        ROW * (self.rows() - row - 0.5) + 2.0
    }

    fn rows(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a handful of rows")]
        let rows = self.rows as f64;
        rows
    }
}

fn texts(flag: &Flag<'_>, word: &str) -> Vec<String> {
    let head = if flag.times == 1 {
        word.to_owned()
    } else {
        format!("{word} \u{d7}{}", flag.times)
    };
    let said = [260.0, 150.0, 80.0]
        .into_iter()
        .filter_map(|room| text::fit(flag.label, SIZE, room));
    said.map(|said| {
        format!(
            "{head}: {said}{}",
            if flag.times == 1 { "" } else { ", \u{2026}" }
        )
    })
    .chain([head.clone()])
    .collect()
}

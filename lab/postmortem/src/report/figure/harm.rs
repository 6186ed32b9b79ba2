//! Events of harm: a line over all lanes, with a label at its top.

use super::{
    RIGHT, WIDTH,
    flags::{Flag, stand, together},
    labels::Rows,
    scale::Scale,
    text,
};
use crate::timeline::{Event, Picture};

/// Font size of the labels.
pub(super) const SIZE: f64 = 11.5;
/// Height of a row of labels.
const ROW: f64 = 16.0;
/// Margin above the lanes.
const AIR: f64 = 8.0;
/// Largest number of rows.
const ROWS: usize = 4;
/// Width of bold letters relative to regular ones.
const BOLD: f64 = 1.08;
/// Events of harm at a smaller distance share a line.
const NEAR: f64 = 5.0;

/// All events of harm.
pub(super) struct Harms<'a> {
    /// Flags in the order of time.
    pub flags: Vec<Flag<'a>>,
    rows: usize,
}

impl<'a> Harms<'a> {
    /// `units` tells whether the harm was the sale of units that do not exist.
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

    /// Returns the height above the lanes.
    pub fn height(&self) -> f64 {
        AIR + ROW * self.rows()
    }

    /// Returns the middle of a row.
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
    let label = [260.0, 150.0, 80.0]
        .into_iter()
        .filter_map(|room| text::fit(flag.label, SIZE, room));
    label
        .map(|label| {
            format!(
                "{head}: {label}{}",
                if flag.times == 1 { "" } else { ", \u{2026}" }
            )
        })
        .chain([head.clone()])
        .collect()
}

//! Placement of labels: rows above the marks, and a stem from each label down to its mark.

/// Smallest distance between two labels.
const GAP: f64 = 4.0;
/// Margin of a stem on either side.
const STEM: f64 = 2.0;
/// Half the width of a mark.
const MARK: f64 = 8.0;

/// Rows of labels. The first is the nearest to the marks.
pub(super) struct Rows {
    taken: Vec<Vec<(f64, f64)>>,
    left: f64,
    right: f64,
}

/// Side of the mark on which a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// Position of a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub row: usize,
    pub side: Side,
    /// Index of the text that fits; none if only the mark fits.
    pub text: Option<usize>,
}

impl Rows {
    pub fn new(left: f64, right: f64) -> Self {
        Self {
            taken: Vec::new(),
            left,
            right,
        }
    }

    /// Returns the number of rows in use.
    pub fn used(&self) -> usize {
        self.taken.len()
    }

    /// Finds a place in the first `most` rows for a mark at `x` with the first of these texts,
    /// given by their widths, that fits; or for the mark alone.
    ///
    /// Marks are placed from the right to the left. A text on the right of its mark may therefore
    /// be above marks that are placed already. A text on the left is possible only where no mark is
    /// `to_come`, whose stem it would block.
    pub fn place(&mut self, x: f64, widths: &[f64], most: usize, to_come: &[f64]) -> Option<Place> {
        let texts = widths
            .iter()
            .enumerate()
            .map(|(n, width)| (Some(n), *width))
            .chain([(None, 0.0)]);
        for (text, width) in texts {
            for side in [Side::Right, Side::Left] {
                let (from, to) = reach(x, width, side);
                if from < self.left
                    || to > self.right
                    || side == Side::Left && to_come.iter().any(|mark| mark + MARK + GAP > from)
                {
                    continue;
                }
                if let Some(row) = (0..most).find(|row| self.is_free(*row, x, from, to)) {
                    self.take(row, x, from, to);
                    return Some(Place { row, side, text });
                }
            }
        }
        None
    }

    fn is_free(&self, row: usize, x: f64, from: f64, to: f64) -> bool {
        let clear = |row: usize, from: f64, to: f64| {
            self.taken.get(row).is_none_or(|taken| {
                taken
                    .iter()
                    .all(|(begin, end)| to + GAP <= *begin || from >= *end + GAP)
            })
        };
        clear(row, from, to) && (0..row).all(|below| clear(below, x - STEM, x + STEM))
    }

    fn take(&mut self, row: usize, x: f64, from: f64, to: f64) {
        if self.taken.len() <= row {
            self.taken.resize(row + 1, Vec::new());
        }
        self.taken[row].push((from, to));
        for below in &mut self.taken[..row] {
            below.push((x - STEM, x + STEM));
        }
    }
}

fn reach(x: f64, width: f64, side: Side) -> (f64, f64) {
    match side {
        Side::Right => (x - MARK, x + MARK + width),
        Side::Left => (x - MARK - width, x + MARK),
    }
}

#[cfg(test)]
mod tests {
    use super::{Place, Rows, Side};

    const fn place(row: usize, side: Side, text: Option<usize>) -> Option<Place> {
        Some(Place { row, side, text })
    }

    #[test]
    fn a_label_is_above_those_on_its_right_and_its_stem_crosses_none() {
        let mut rows = Rows::new(0.0, 200.0);
        assert_eq!(
            rows.place(100.0, &[80.0], 2, &[]),
            place(0, Side::Right, Some(0))
        );
        assert_eq!(
            rows.place(70.0, &[80.0], 2, &[]),
            place(1, Side::Right, Some(0))
        );
        assert_eq!(
            rows.place(150.0, &[10.0], 2, &[]),
            None,
            "its stem would cross the first"
        );
        assert_eq!(
            rows.place(195.0, &[80.0], 2, &[]),
            None,
            "its mark would leave the drawing"
        );
        assert_eq!(rows.used(), 2);
    }

    #[test]
    fn at_the_edge_a_label_is_on_the_left_unless_it_would_hide_a_later_mark() {
        let mut rows = Rows::new(0.0, 200.0);
        assert_eq!(
            rows.place(180.0, &[80.0, 8.0], 2, &[20.0]),
            place(0, Side::Left, Some(0))
        );
        let mut rows = Rows::new(0.0, 200.0);
        assert_eq!(
            rows.place(180.0, &[80.0, 8.0], 2, &[20.0, 120.0]),
            place(0, Side::Right, Some(1)),
            "the shorter text fits"
        );
        assert_eq!(
            rows.place(120.0, &[90.0], 2, &[20.0]),
            place(0, Side::Right, None),
            "only the mark fits"
        );
    }
}

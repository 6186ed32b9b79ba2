//! The time axis, and the grid lines on it.

use maud::{Markup, html};

use super::{
    WIDTH,
    scale::Scale,
    text::{self, n},
};

/// Height of the axis below the drawing.
pub(super) const HEIGHT: f64 = 34.0;

/// Draws grid lines at round numbers.
pub(super) fn grid(scale: &Scale, top: f64, bottom: f64) -> Markup {
    html! {
        @for (x, _) in scale.ticks() { line.grid x1=(n(x)) x2=(n(x)) y1=(n(top)) y2=(n(bottom)) {} }
    }
}

/// Shades the stretches in which time is compressed.
pub(super) fn shortened(scale: &Scale, top: f64, bottom: f64) -> Markup {
    html! {
        @for (from, to, _) in scale.shortened() { rect.short x=(n(from)) y=(n(top)) width=(n(to - from)) height=(n(bottom - top)) {} }
    }
}

/// Draws the axis and its numbers.
pub(super) fn axis(scale: &Scale, y: f64) -> Markup {
    html! {
        g.axis {
            line x1=(n(scale.left)) x2=(n(scale.right)) y1=(n(y)) y2=(n(y)) {}
            @for (x, label) in scale.ticks() {
                line x1=(n(x)) x2=(n(x)) y1=(n(y)) y2=(n(y + 4.0)) {}
                text.tick x=(n(x)) y=(n(y + 16.0)) text-anchor="middle" { (label) }
            }
            @for (from, to, seconds) in scale.shortened() { (interrupted((from + to) / 2.0, y, seconds)) }
            text.tick x=(n(WIDTH - 6.0)) y=(n(y + 30.0)) text-anchor="end" { "seconds of scenario time" }
        }
    }
}

/// Draws a break of the axis, with the length of the compressed stretch.
fn interrupted(x: f64, y: f64, seconds: f64) -> Markup {
    html! {
        path.gap d={ "M" (n(x - 3.0)) " " (n(y)) "h6" } {}
        path d={ "M" (n(x - 6.0)) " " (n(y + 5.0)) "l6-10M" (n(x)) " " (n(y + 5.0)) "l6-10" } {}
        text.tick x=(n(x)) y=(n(y + 16.0)) text-anchor="middle" { "+" (text::seconds(seconds)) }
    }
}

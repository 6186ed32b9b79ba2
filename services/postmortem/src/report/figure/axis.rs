//! The axis of time, and the lines that stand on it.

use maud::{Markup, html};

use super::{
    WIDTH,
    scale::Scale,
    text::{self, n},
};

/// What it needs under the drawing.
pub(super) const HEIGHT: f64 = 34.0;

/// Thin lines over everything, at round numbers.
pub(super) fn grid(scale: &Scale, top: f64, bottom: f64) -> Markup {
    html! {
        @for (x, _) in scale.ticks() { line.grid x1=(n(x)) x2=(n(x)) y1=(n(top)) y2=(n(bottom)) {} }
    }
}

/// Where time is drawn shorter than it was, a shade under everything.
pub(super) fn shortened(scale: &Scale, top: f64, bottom: f64) -> Markup {
    html! {
        @for (from, to, _) in scale.shortened() { rect.short x=(n(from)) y=(n(top)) width=(n(to - from)) height=(n(bottom - top)) {} }
    }
}

/// The numbers.
pub(super) fn axis(scale: &Scale, y: f64) -> Markup {
    html! {
        g.axis {
            line x1=(n(scale.left)) x2=(n(scale.right)) y1=(n(y)) y2=(n(y)) {}
            @for (x, told) in scale.ticks() {
                line x1=(n(x)) x2=(n(x)) y1=(n(y)) y2=(n(y + 4.0)) {}
                text.tick x=(n(x)) y=(n(y + 16.0)) text-anchor="middle" { (told) }
            }
            @for (from, to, seconds) in scale.shortened() { (interrupted((from + to) / 2.0, y, seconds)) }
            text.tick x=(n(WIDTH - 6.0)) y=(n(y + 30.0)) text-anchor="end" { "seconds of the story" }
        }
    }
}

/// Two strokes through the axis, and how long it was.
fn interrupted(x: f64, y: f64, seconds: f64) -> Markup {
    html! {
        path.gap d={ "M" (n(x - 3.0)) " " (n(y)) "h6" } {}
        path d={ "M" (n(x - 6.0)) " " (n(y + 5.0)) "l6-10M" (n(x)) " " (n(y + 5.0)) "l6-10" } {}
        text.tick x=(n(x)) y=(n(y + 16.0)) text-anchor="middle" { "+" (text::seconds(seconds)) }
    }
}

//! The drawing, from the background to the foreground.

use maud::{Markup, html};

use super::{
    Layout, WIDTH, axis,
    bars::Bar,
    flags::{self, Flag},
    harm,
    labels::{Place, Side},
    lanes::{self, Lane},
    marks::{look, mark},
    text::{self, n},
};
use crate::{
    run::VariantRun,
    timeline::{Doing, Event},
};

/// Font size of labels on bars.
const ON_BAR: f64 = 10.5;
/// Distance from a mark to its text.
const TEXT_GAP: f64 = 9.0;
/// Distance from the edge of a bar to its text.
const INSET: f64 = 5.0;
/// Smallest width of a bar.
const THINNEST: f64 = 1.5;

/// Draws a variant's timeline.
pub(super) fn draw(id: &str, variant: &VariantRun, layout: &Layout<'_>) -> Markup {
    let (top, bottom) = (layout.lanes.top, layout.bottom());
    let height = n(bottom + axis::HEIGHT);
    html! {
        svg.timeline viewBox={ "0 0 " (WIDTH) " " (height) } width=(WIDTH) height=(height) role="img" aria-labelledby={ (id) "-t " (id) "-d" } {
            title id={ (id) "-t" } { (variant.variant.name) ": timeline by actor" }
            desc id={ (id) "-d" } { (described(variant, layout)) }
            (axis::shortened(&layout.scale, top, bottom))
            @for lane in &layout.lanes.lanes { (ground(lane, layout)) }
            (axis::grid(&layout.scale, top, bottom))
            @for flag in &layout.harms.flags { (line(flag, layout)) }
            @for lane in &layout.lanes.lanes { (stems(lane)) }
            @for lane in &layout.lanes.lanes { g.lane { @for bar in &lane.bars { (bar_of(lane, bar)) } } }
            @if let Some(curve) = &layout.curve { (curve.draw()) }
            @for lane in &layout.lanes.lanes { g.moments { @for flag in &lane.flags { (flag_of(lane, flag)) } } }
            @for flag in &layout.harms.flags { @if let Some((place, label)) = &flag.place { (harm_label(flag, *place, label, layout)) } }
            (axis::axis(&layout.scale, bottom))
        }
    }
}

/// Returns a description of the drawing for screen readers.
fn described(variant: &VariantRun, layout: &Layout<'_>) -> String {
    let lanes = layout
        .lanes
        .lanes
        .iter()
        .map(|lane| lane.name)
        .collect::<Vec<_>>()
        .join(", ");
    let holders = match variant.measurements.holders_at_once {
        0 => String::new(),
        holders => format!(" At most {holders} concurrent holders."),
    };
    let harms = layout
        .harms
        .flags
        .iter()
        .map(Flag::when)
        .collect::<Vec<_>>();
    let harms = if harms.is_empty() {
        " No harm occurred.".to_owned()
    } else {
        format!(" Harm occurred at {}.", harms.join(", "))
    };
    format!(
        "{} of scenario time. Lanes: {lanes}.{holders}{harms} The list below has every event.",
        text::seconds(layout.scale.length())
    )
}

fn ground(lane: &Lane<'_>, layout: &Layout<'_>) -> Markup {
    let name = text::fit(lane.name, lanes::NAME, layout.scale.left - 18.0).unwrap_or_default();
    html! {
        line.between x1="0" x2=(WIDTH) y1=(n(lane.top)) y2=(n(lane.top)) {}
        line.course x1=(n(layout.scale.left)) x2=(n(layout.scale.right)) y1=(n(lane.track(0) + lanes::BAR / 2.0)) y2=(n(lane.track(0) + lanes::BAR / 2.0)) {}
        text.lane x=(n(layout.scale.left - 12.0)) y=(n(lane.middle())) text-anchor="end" dominant-baseline="central" {
            (name) @if name != lane.name { title { (lane.name) } }
        }
    }
}

/// Draws a harm as a line through all lanes.
fn line(flag: &Flag<'_>, layout: &Layout<'_>) -> Markup {
    let top = flag
        .place
        .as_ref()
        .map_or(layout.lanes.top, |(place, _)| layout.harms.row(place.row));
    html! {
        @if flag.to - flag.from > 1.0 {
            rect.harm x=(n(flag.from)) y=(n(layout.lanes.top)) width=(n(flag.to - flag.from)) height=(n(layout.bottom() - layout.lanes.top)) {}
        }
        line.harm x1=(n(flag.from)) x2=(n(flag.from)) y1=(n(top)) y2=(n(layout.bottom())) {}
    }
}

/// Draws the label of a harm.
fn harm_label(flag: &Flag<'_>, place: Place, label: &str, layout: &Layout<'_>) -> Markup {
    let y = layout.harms.row(place.row);
    html! {
        g.harm {
            title { (flag.when()) ", " (flag.description()) }
            use href="#m-harm" class="m harm" x=(n(flag.from)) y=(n(y)) {}
            (beside("harm", flag.from, y, place.side, label, harm::SIZE))
        }
    }
}

fn stems(lane: &Lane<'_>) -> Markup {
    html! {
        @for flag in &lane.flags {
            @if let Some((place, _)) = &flag.place {
                line.stem x1=(n(flag.from)) x2=(n(flag.from)) y1=(n(lane.row(place.row))) y2=(n(lane.track(0) + lanes::BAR)) {}
            }
        }
    }
}

fn flag_of(lane: &Lane<'_>, flag: &Flag<'_>) -> Markup {
    let middle = lane.track(0) + lanes::BAR / 2.0;
    html! {
        g.moment {
            title { (flag.when()) ", " (flag.description()) }
            @match flag.event {
                Event::Sale => (on_bar(flag, middle)),
                Event::Harm => use href="#m-harm" class="m harm" x=(n(flag.from)) y=(n(middle)) {},
                _ => {}
            }
            @if let Some((place, label)) = &flag.place {
                @if flag.event != Event::Sale {
                    use href={ "#m-" (mark(flag.event)) } class={ "m " (mark(flag.event)) } x=(n(flag.from)) y=(n(lane.row(place.row))) {}
                }
                (beside(mark(flag.event), flag.from, lane.row(place.row), place.side, label, flags::SIZE))
            }
        }
    }
}

/// Draws a sale as a point on the bar, and many sales as a long one.
fn on_bar(flag: &Flag<'_>, middle: f64) -> Markup {
    html! {
        @if flag.times == 1 { use href="#m-sale" class="m sale" x=(n(flag.from)) y=(n(middle)) {} }
        @else { rect.m.sale x=(n(flag.from - 3.4)) y=(n(middle - 3.4)) width=(n(flag.to - flag.from + 6.8)) height="6.8" rx="3.4" {} }
    }
}

fn beside(class: &str, x: f64, y: f64, side: Side, label: &str, size: f64) -> Markup {
    let (x, anchor) = match side {
        Side::Right => (x + TEXT_GAP, "start"),
        Side::Left => (x - TEXT_GAP, "end"),
    };
    html! {
        @if !label.is_empty() {
            text class={ "mark-label " (class) } x=(n(x)) y=(n(y)) font-size=(size) text-anchor=(anchor) dominant-baseline="central" { (label) }
        }
    }
}

fn bar_of(lane: &Lane<'_>, bar: &Bar<'_>) -> Markup {
    let y = lane.track(bar.track);
    html! {
        g class={ "bar " (look(bar.doing)) } {
            title { (bar.when()) ", " (bar.description()) }
            @if bar.doing == Doing::Waiting { (wait(lane, bar, y + lanes::BAR / 2.0)) } @else { (block(lane, bar, y)) }
        }
    }
}

/// Draws a dotted line that leaves room for its label.
fn wait(lane: &Lane<'_>, bar: &Bar<'_>, y: f64) -> Markup {
    let label = fitting(lane, bar, bar.from, bar.to);
    let taken = label
        .as_deref()
        .map_or(0.0, |label| text::width(label, ON_BAR) + 2.0 * INSET);
    html! {
        path d={ "M" (n(bar.from + taken)) " " (n(y)) "H" (n(bar.to.max(bar.from + THINNEST))) } {}
        @if let Some(label) = label { (on_it(bar.from, y, false, &label)) }
    }
}

fn block(lane: &Lane<'_>, bar: &Bar<'_>, y: f64) -> Markup {
    let to = bar.to.max(bar.from + THINNEST);
    let over = bar.over.unwrap_or(to).min(to);
    // The label is on the longer part.
    let is_over = to - over > over - bar.from;
    let (begin, end) = if is_over {
        (over, to)
    } else {
        (bar.from, over)
    };
    html! {
        @if over > bar.from { rect x=(n(bar.from)) y=(n(y)) width=(n(over - bar.from)) height=(lanes::BAR) {} }
        @if to > over { rect.over x=(n(over)) y=(n(y)) width=(n(to - over)) height=(lanes::BAR) {} }
        @if let Some(label) = fitting(lane, bar, begin, end) { (on_it(begin, y + lanes::BAR / 2.0, is_over, &label)) }
    }
}

fn on_it(x: f64, y: f64, is_over: bool, label: &str) -> Markup {
    html! { text.on-over[is_over] x=(n(x + INSET)) y=(n(y)) font-size=(ON_BAR) dominant-baseline="central" { (label) } }
}

/// Returns the part of the label that fits before the first mark on the bar.
fn fitting(lane: &Lane<'_>, bar: &Bar<'_>, from: f64, to: f64) -> Option<String> {
    let label = if bar.times == 1 { bar.label } else { "" };
    let marks = lane
        .flags
        .iter()
        .filter(|flag| bar.track == 0 && matches!(flag.event, Event::Sale | Event::Harm));
    let to = marks
        .map(|flag| flag.from)
        .filter(|x| *x >= from)
        .fold(to, f64::min);
    text::fit(label, ON_BAR, to - from - 2.0 * INSET).filter(|label| !label.is_empty())
}

//! The timeline as a list, for screen readers and for labels that do not fit into the drawing.

use maud::{Markup, html};

use super::Layout;

struct Line<'a> {
    begins: f64,
    when: String,
    actor: &'a str,
    event: String,
}

/// Lists everything that is drawn, in the order of time.
pub(super) fn list(layout: &Layout<'_>) -> Markup {
    let mut lines: Vec<_> = layout.lanes.lanes.iter().flat_map(of_lane).collect();
    lines.sort_by(|a, b| a.begins.total_cmp(&b.begins));
    html! {
        details.list {
            summary { "The timeline as a list: " (lines.len()) @if lines.len() == 1 { " line" } @else { " lines" } }
            div.scroll tabindex="0" role="region" aria-label="The timeline as a list" {
                table {
                    thead { tr { th scope="col" { "Time" } th scope="col" { "Actor" } th scope="col" { "What" } } }
                    tbody { @for line in &lines { tr { td.when { (line.when) } td { (line.actor) } td { (line.event) } } } }
                }
            }
        }
    }
}

fn of_lane<'a>(lane: &'a super::lanes::Lane<'_>) -> impl Iterator<Item = Line<'a>> {
    let bars = lane.bars.iter().map(|bar| Line {
        begins: bar.begins,
        when: bar.when(),
        actor: lane.name,
        event: bar.description(),
    });
    let flags = lane.flags.iter().map(|flag| Line {
        begins: flag.begins,
        when: flag.when(),
        actor: lane.name,
        event: flag.description(),
    });
    bars.chain(flags)
}

//! The marks and hatchings, defined once in the page. Each has a different shape, so none depends
//! on its colour.

use maud::{Markup, html};

use crate::timeline::{Doing, Event};

/// Returns the definitions that all figures refer to.
pub(in crate::report) fn definitions() -> Markup {
    html! {
        svg.definitions width="0" height="0" aria-hidden="true" focusable="false" {
            defs {
                (hatching("over", 6, html! { path d="M0 0V6" {} }, "rotate(45)"))
                (hatching("stalled", 5, html! { circle cx="1.5" cy="1.5" r="1" {} }, "rotate(30)"))
                (hatching("down", 7, html! { path d="M0 0V7M0 0H7" {} }, "rotate(45)"))
                g #m-write { rect x="-4" y="-4" width="8" height="8" rx="1" {} }
                g #m-sale { circle r="3.4" {} }
                g #m-harm { path d="M0-8L8 0L0 8L-8 0Z" {} path.on d="M0-4V1M0 3V4.2" {} }
                g #m-stolen { path d="M-5.5-4H5.5L0 5.5Z" {} }
                g #m-expired { path d="M-4.5-5.5H4.5L-4.5 5.5H4.5Z" {} }
                g #m-refused { circle r="5" {} path.on d="M-3 0H3" {} }
                g #m-fault { path d="M1.5-7L-4.5 1.2H-.6L-1.5 7L4.5-1.6H.6Z" {} }
                g #m-note { circle r="3" {} }
            }
        }
    }
}

fn hatching(name: &str, size: u32, ink: Markup, turned: &str) -> Markup {
    html! {
        pattern id={ "h-" (name) } class={ "hatching " (name) } width=(size) height=(size) patternUnits="userSpaceOnUse" patternTransform=(turned) {
            rect width=(size) height=(size) {}
            (ink)
        }
    }
}

/// Returns the mark of an event.
pub(super) const fn mark(event: Event) -> &'static str {
    match event {
        Event::Write => "write",
        Event::Sale => "sale",
        Event::Harm => "harm",
        Event::Stolen => "stolen",
        Event::Expired => "expired",
        Event::Refused => "refused",
        Event::Fault => "fault",
        Event::Note => "note",
    }
}

/// Returns the style of a bar.
pub(super) const fn look(doing: Doing) -> &'static str {
    match doing {
        Doing::Holding => "holding",
        Doing::Waiting => "waiting",
        Doing::Stalled => "stalled",
        Doing::Working => "working",
        Doing::Down => "down",
    }
}

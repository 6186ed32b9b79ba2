//! Events as flags above the bars. Adjacent events of one kind share a flag.

use super::{
    labels::{Place, Rows},
    scale::Scale,
    text,
};
use crate::timeline::{Event, Moment, Picture};

/// Font size of the labels.
pub(super) const SIZE: f64 = 11.0;
/// Largest number of rows of labels in a lane.
const ROWS: usize = 4;
/// Events at a smaller distance share a flag if there are many, or if their labels are equal.
const NEAR: f64 = 8.0;
/// The distance if there are few.
const VERY_NEAR: f64 = 1.5;
/// Largest number of events that counts as few.
const FEW: usize = 20;
/// Largest width of a label.
const LONGEST: f64 = 250.0;

/// An event, or several of a kind.
pub(super) struct Flag<'a> {
    pub event: Event,
    pub label: &'a str,
    /// Number of events.
    pub times: usize,
    /// Position of the first and the last event in the drawing.
    pub from: f64,
    pub to: f64,
    /// Times in seconds of scenario time.
    pub begins: f64,
    pub ends: f64,
    /// Position and text; none where there is no room.
    pub place: Option<(Place, String)>,
    last: &'a str,
}

impl Flag<'_> {
    /// Returns the description of the flag.
    pub fn description(&self) -> String {
        match self.times {
            1 => format!("{}: {}", word(self.event), self.label),
            times => format!(
                "{} {times} times: {} \u{2026} {}",
                word(self.event),
                self.label,
                self.last
            ),
        }
    }

    /// Returns the time of the flag as text.
    pub fn when(&self) -> String {
        if self.times == 1 {
            text::seconds(self.begins)
        } else {
            format!("{:.1}\u{2013}{}", self.begins, text::seconds(self.ends))
        }
    }

    /// Returns the texts, the longest first.
    fn texts(&self) -> Vec<String> {
        let short = |room| text::fit(self.label, SIZE, room);
        match (self.event, self.times) {
            (Event::Sale, times) => vec![format!("{times} sold"), format!("{times}")],
            (_, 1) => [LONGEST, 130.0, 70.0]
                .into_iter()
                .filter_map(short)
                .collect(),
            (_, times) => {
                let long = [LONGEST, 100.0]
                    .into_iter()
                    .filter_map(short)
                    .map(|text| format!("{times}\u{d7} {text}"));
                long.chain([format!("{times}\u{d7}")]).collect()
            }
        }
    }
}

/// Returns the word for an event.
pub(super) const fn word(event: Event) -> &'static str {
    match event {
        Event::Write => "writes",
        Event::Sale => "sells",
        Event::Harm => "harm",
        Event::Stolen => "stolen",
        Event::Expired => "expired",
        Event::Refused => "refused",
        Event::Fault => "fault",
        Event::Note => "note",
    }
}

/// Events that get a flag. A harm is labelled at the top of the drawing, and a sale is a mark on
/// the bar.
const FLAGGED: [Event; 6] = [
    Event::Fault,
    Event::Stolen,
    Event::Expired,
    Event::Refused,
    Event::Write,
    Event::Note,
];

/// Returns the flags of a lane, separately for each kind.
pub(super) fn of_lane<'a>(
    picture: &'a Picture,
    lane: usize,
    scale: &Scale,
    rows: &mut Rows,
) -> Vec<Flag<'a>> {
    let are_few = picture
        .moments
        .iter()
        .filter(|moment| moment.lane == lane && FLAGGED.contains(&moment.event))
        .count()
        <= FEW;
    let near = if are_few { VERY_NEAR } else { NEAR };
    let of_kind = |event, near| {
        together(
            picture,
            |moment| moment.lane == lane && moment.event == event,
            scale,
            near,
        )
    };
    let mut flags: Vec<_> = FLAGGED
        .into_iter()
        .flat_map(|event| of_kind(event, near))
        .collect();
    stand(&mut flags, |flag| flag.texts(), SIZE, ROWS, rows);
    // A single sale has no text, and a number without room needs no stem either.
    let (mut several, single): (Vec<_>, Vec<_>) = of_kind(Event::Sale, NEAR)
        .into_iter()
        .partition(|flag| flag.times > 1);
    stand(&mut several, |flag| flag.texts(), SIZE, 1, rows);
    several
        .iter_mut()
        .for_each(|flag| flag.place = flag.place.take().filter(|(_, label)| !label.is_empty()));
    [of_kind(Event::Harm, NEAR), flags, several, single]
        .into_iter()
        .flatten()
        .collect()
}

/// Places the flags, from the right to the left.
pub(super) fn stand(
    flags: &mut [Flag<'_>],
    texts: impl Fn(&Flag<'_>) -> Vec<String>,
    size: f64,
    most: usize,
    rows: &mut Rows,
) {
    flags.sort_by(|a, b| a.from.total_cmp(&b.from));
    let all: Vec<_> = flags.iter().map(|flag| flag.from).collect();
    for (n, flag) in flags.iter_mut().enumerate().rev() {
        let texts = texts(flag);
        let widths: Vec<_> = texts.iter().map(|text| text::width(text, size)).collect();
        let place = rows.place(flag.from, &widths, most, &all[..n]);
        flag.place = place.map(|place| {
            (
                place,
                place.text.map(|n| texts[n].clone()).unwrap_or_default(),
            )
        });
    }
}

/// Returns these events in the order of time, with adjacent ones merged.
pub(super) fn together<'a>(
    picture: &'a Picture,
    wanted: impl Fn(&Moment) -> bool,
    scale: &Scale,
    near: f64,
) -> Vec<Flag<'a>> {
    let mut moments: Vec<_> = picture
        .moments
        .iter()
        .filter(|moment| wanted(moment))
        .collect();
    moments.sort_by(|a, b| a.at.total_cmp(&b.at));
    let mut flags: Vec<Flag<'_>> = Vec::new();
    for moment in moments {
        let (x, at) = (scale.x(moment.at), scale.since(moment.at));
        match flags.last_mut() {
            Some(flag) if x - flag.to < near || x - flag.to < NEAR && flag.last == moment.label => {
                (flag.to, flag.ends, flag.last) = (x, at, &moment.label);
                flag.times += 1;
            }
            _ => flags.push(Flag {
                event: moment.event,
                label: &moment.label,
                times: 1,
                from: x,
                to: x,
                begins: at,
                ends: at,
                place: None,
                last: &moment.label,
            }),
        }
    }
    flags
}

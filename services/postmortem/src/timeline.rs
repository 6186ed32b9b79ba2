//! What happened, when, and to whom: the lanes of the picture, and what the verdict counts holders by.
//!
//! All times are seconds of the story since the way began.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::pace::Pace;

/// What an actor is at for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// It believes that it has the lock: it is inside.
    Holding,
    /// It wants the lock.
    Waiting,
    /// It waits for something that does not come, or is stopped.
    Stalled,
    /// It works.
    Working,
    /// A server that does not run or cannot be reached.
    Down,
}

/// What happens in a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A write that got through.
    Write,
    /// A unit was sold.
    Sale,
    /// A unit was sold that does not exist, or another harm was done.
    Harm,
    /// A lock was taken away from the one who holds it.
    Stolen,
    /// A lock ran out under its holder.
    Expired,
    /// A write or an order was refused.
    Refused,
    /// What was broken on purpose.
    Fault,
    /// Anything else worth a word.
    Note,
}

/// A stretch of a lane.
#[derive(Debug, Clone, Serialize)]
pub struct Span {
    /// Index of the lane.
    pub lane: usize,
    /// What the actor was at.
    pub doing: Doing,
    /// In a few words.
    pub label: String,
    /// Since.
    pub from: f64,
    /// Until; none if it never ended.
    pub to: Option<f64>,
    /// For a lock with a lease: until when it was the holder's.
    pub valid_until: Option<f64>,
}

/// A moment of a lane.
#[derive(Debug, Clone, Serialize)]
pub struct Moment {
    /// Index of the lane.
    pub lane: usize,
    /// What kind.
    pub event: Event,
    /// In a few words.
    pub label: String,
    /// When.
    pub at: f64,
}

/// Everything that was noted, as the report has it.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Picture {
    /// Names of the actors, from the top.
    pub lanes: Vec<String>,
    /// What they were at.
    pub spans: Vec<Span>,
    /// What happened.
    pub moments: Vec<Moment>,
    /// Units that were left, as they were read: time and units.
    pub stock: Vec<(f64, i64)>,
    /// When the way ended.
    pub end: f64,
}

/// Where actors note what they do. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Timeline {
    pace: Pace,
    begin: Instant,
    picture: Arc<Mutex<Picture>>,
}

impl Timeline {
    /// Begins now.
    pub fn begin(pace: Pace) -> Self {
        Self {
            pace,
            begin: Instant::now(),
            picture: Arc::default(),
        }
    }

    /// Seconds of the story since it began.
    pub fn now(&self) -> f64 {
        self.pace.story(self.begin.elapsed()).as_secs_f64()
    }

    /// The lane of this name; a new one goes below the others.
    pub fn lane(&self, name: impl Into<String>) -> Lane {
        let name = name.into();
        let mut picture = self.picture();
        let index = picture
            .lanes
            .iter()
            .position(|lane| *lane == name)
            .unwrap_or_else(|| {
                picture.lanes.push(name);
                picture.lanes.len() - 1
            });
        Lane {
            timeline: self.clone(),
            index,
        }
    }

    /// Notes how many units are left.
    pub fn stock(&self, units: i64) {
        let at = self.now();
        self.picture().stock.push((at, units));
    }

    /// The largest number of actors that were inside at the same moment.
    pub fn holders_at_once(&self) -> u64 {
        holders_at_once(&self.picture().spans)
    }

    /// How many are inside now.
    pub fn inside(&self) -> u64 {
        self.picture()
            .spans
            .iter()
            .filter(|span| span.doing == Doing::Holding && span.to.is_none())
            .count() as u64
    }

    /// The longest time that an actor waited or stood still, in seconds of the story.
    pub fn longest(&self, doing: Doing) -> f64 {
        let now = self.now();
        let lengths = |span: &Span| span.to.unwrap_or(now) - span.from;
        self.picture()
            .spans
            .iter()
            .filter(|span| span.doing == doing)
            .map(lengths)
            .fold(0.0, f64::max)
    }

    /// Ends it, and hands out what was noted.
    pub fn finish(&self) -> Picture {
        let end = self.now();
        let mut picture = self.picture();
        picture.end = end;
        picture.clone()
    }

    fn picture(&self) -> MutexGuard<'_, Picture> {
        self.picture.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who enters when another leaves does not overlap with it.
fn holders_at_once(spans: &[Span]) -> u64 {
    let inside = spans.iter().filter(|span| span.doing == Doing::Holding);
    let mut changes: Vec<(f64, i64)> = inside
        .flat_map(|span| [(span.from, 1), (span.to.unwrap_or(f64::INFINITY), -1)])
        .collect();
    changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut now = 0;
    let most = changes.into_iter().map(|(_, change)| {
        now += change;
        now
    });
    u64::try_from(most.max().unwrap_or(0)).unwrap_or(0)
}

/// One actor's line in the picture.
#[derive(Debug, Clone)]
pub struct Lane {
    timeline: Timeline,
    index: usize,
}

impl Lane {
    /// From now on, until what it returns is dropped, the actor is at this.
    pub fn is(&self, doing: Doing, label: impl Into<String>) -> During {
        self.begins(doing, label.into(), None)
    }

    /// From now on it is inside, with a lease of so long a time of the story.
    pub fn holds(&self, label: impl Into<String>, lease: Duration) -> During {
        self.begins(Doing::Holding, label.into(), Some(lease))
    }

    /// Something happens.
    pub fn notes(&self, event: Event, label: impl Into<String>) {
        let moment = Moment {
            lane: self.index,
            event,
            label: label.into(),
            at: self.timeline.now(),
        };
        self.timeline.picture().moments.push(moment);
    }

    fn begins(&self, doing: Doing, label: String, lease: Option<Duration>) -> During {
        let from = self.timeline.now();
        let valid_until = lease.map(|lease| from + lease.as_secs_f64());
        let span = Span {
            lane: self.index,
            doing,
            label,
            from,
            to: None,
            valid_until,
        };
        let mut picture = self.timeline.picture();
        picture.spans.push(span);
        During {
            timeline: self.timeline.clone(),
            span: picture.spans.len() - 1,
        }
    }
}

/// An actor is at something until this is dropped.
#[derive(Debug)]
#[must_use = "what an actor is at ends when this is dropped"]
pub struct During {
    timeline: Timeline,
    span: usize,
}

impl During {
    /// The lease was extended: it is good for so long from now.
    pub fn is_extended(&self, lease: Duration) {
        let until = self.timeline.now() + lease.as_secs_f64();
        self.timeline.picture().spans[self.span].valid_until = Some(until);
    }
}

impl Drop for During {
    fn drop(&mut self) {
        let now = self.timeline.now();
        self.timeline.picture().spans[self.span].to = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::{Doing, Span, holders_at_once};

    fn span(doing: Doing, from: f64, to: Option<f64>) -> Span {
        Span {
            lane: 0,
            doing,
            label: String::new(),
            from,
            to,
            valid_until: None,
        }
    }

    #[test]
    fn only_those_who_are_inside_at_the_same_time_are_counted_together() {
        let holding = |from, to| span(Doing::Holding, from, Some(to));
        assert_eq!(holders_at_once(&[]), 0);
        assert_eq!(holders_at_once(&[holding(0.0, 1.0), holding(1.0, 2.0)]), 1);
        assert_eq!(
            holders_at_once(&[holding(0.0, 3.0), holding(1.0, 2.0), holding(2.5, 4.0)]),
            2
        );
        assert_eq!(
            holders_at_once(&[
                span(Doing::Holding, 0.0, None),
                holding(5.0, 6.0),
                span(Doing::Waiting, 0.0, None)
            ]),
            2
        );
    }
}

//! The events of a run in swim lanes, one for each actor. The verdict counts concurrent holders
//! from it.
//!
//! All times are seconds of scenario time since the run began.

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::pace::Pace;

/// Activity of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// Acts as the holder of the lock: it is inside.
    Holding,
    /// Waits for the lock.
    Waiting,
    /// Is stopped, or waits for an answer that does not come.
    Stalled,
    /// Works.
    Working,
    /// Is a server that does not run or cannot be reached.
    Down,
}

/// Kind of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A write was accepted.
    Write,
    /// A unit was sold.
    Sale,
    /// A unit was sold that does not exist, or other harm was done.
    Harm,
    /// A lock was deleted under its holder by another client.
    Stolen,
    /// A lock expired under its holder.
    Expired,
    /// A write or an order was refused.
    Refused,
    /// A fault was injected.
    Fault,
    /// Any other event.
    Note,
}

/// A bar in a swim lane: an activity from begin to end.
#[derive(Debug, Clone, Serialize)]
pub struct Span {
    /// Index of the swim lane.
    pub lane: usize,
    /// Activity of the actor.
    pub doing: Doing,
    /// Label of a few words.
    pub label: String,
    /// Begin.
    pub from: f64,
    /// End; none if it never ended.
    pub to: Option<f64>,
    /// End of the lease, for a lock with a lease.
    pub valid_until: Option<f64>,
}

/// An event in a swim lane.
#[derive(Debug, Clone, Serialize)]
pub struct Moment {
    /// Index of the swim lane.
    pub lane: usize,
    /// Kind of event.
    pub event: Event,
    /// Label of a few words.
    pub label: String,
    /// Time of the event.
    pub at: f64,
}

/// Everything that was recorded, for the report.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Picture {
    /// Names of the actors, from the top.
    pub lanes: Vec<String>,
    /// Activities of the actors.
    pub spans: Vec<Span>,
    /// Events.
    pub moments: Vec<Moment>,
    /// Number of units that were left: time of the read, and units.
    pub stock: Vec<(f64, i64)>,
    /// End of the run.
    pub end: f64,
}

/// Recorder of activities and events. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Timeline {
    pace: Pace,
    begin: Instant,
    /// End of a run that was recorded elsewhere.
    end: Arc<OnceLock<f64>>,
    picture: Arc<Mutex<Picture>>,
}

impl Timeline {
    /// Starts a timeline now.
    pub fn begin(pace: Pace) -> Self {
        Self {
            pace,
            begin: Instant::now(),
            end: Arc::default(),
            picture: Arc::default(),
        }
    }

    /// Returns the seconds of scenario time since the start.
    pub fn now(&self) -> f64 {
        self.pace.scenario(self.begin.elapsed()).as_secs_f64()
    }

    /// Returns the swim lane of this name; a new one is added below the others.
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

    /// Records the number of units that are left.
    pub fn stock(&self, units: i64) {
        let at = self.now();
        self.picture().stock.push((at, units));
    }

    /// Returns the largest number of concurrent holders.
    pub fn holders_at_once(&self) -> u64 {
        holders_at_once(&self.picture().spans)
    }

    /// Returns the number of current holders.
    pub fn inside(&self) -> u64 {
        self.picture()
            .spans
            .iter()
            .filter(|span| span.doing == Doing::Holding && span.to.is_none())
            .count() as u64
    }

    /// Returns the longest activity of this kind, in seconds of scenario time.
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

    /// Sets the end of a run that was recorded elsewhere, instead of the moment of
    /// [`finish`](Self::finish).
    pub fn ended_at(&self, end: f64) {
        let _ = self.end.set(end);
    }

    /// Ends the timeline, and returns its recording.
    pub fn finish(&self) -> Picture {
        let end = self.end.get().copied().unwrap_or_else(|| self.now());
        let mut picture = self.picture();
        picture.end = end;
        picture.clone()
    }

    fn picture(&self) -> MutexGuard<'_, Picture> {
        self.picture.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts concurrent holders. A holder that enters as another leaves does not overlap with it.
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

/// Swim lane of one actor.
#[derive(Debug, Clone)]
pub struct Lane {
    timeline: Timeline,
    index: usize,
}

impl Lane {
    /// Records an activity from now on until the returned value is dropped.
    pub fn is(&self, doing: Doing, label: impl Into<String>) -> During {
        self.begins(doing, label.into(), None)
    }

    /// Records that the actor holds the lock from now on, with a lease in scenario time.
    pub fn holds(&self, label: impl Into<String>, lease: Duration) -> During {
        self.begins(Doing::Holding, label.into(), Some(lease))
    }

    /// Records an event.
    pub fn notes(&self, event: Event, label: impl Into<String>) {
        self.noted(event, label, self.timeline.now());
    }

    /// Records an event of a run that was recorded elsewhere.
    pub fn noted(&self, event: Event, label: impl Into<String>, at: f64) {
        let moment = Moment {
            lane: self.index,
            event,
            label: label.into(),
            at,
        };
        self.timeline.picture().moments.push(moment);
    }

    /// Records an activity of a run that was recorded elsewhere.
    pub fn was(&self, doing: Doing, label: impl Into<String>, from: f64, to: f64) {
        let span = Span {
            lane: self.index,
            doing,
            label: label.into(),
            from,
            to: Some(to),
            valid_until: None,
        };
        self.timeline.picture().spans.push(span);
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

/// A running activity, which ends when this is dropped.
#[derive(Debug)]
#[must_use = "what an actor is at ends when this is dropped"]
pub struct During {
    timeline: Timeline,
    span: usize,
}

impl During {
    /// Records that the lease was extended: it is valid for this long from now.
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
    fn only_overlapping_holders_are_counted_as_concurrent() {
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

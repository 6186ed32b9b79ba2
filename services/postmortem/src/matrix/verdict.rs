//! What a lock has promised, held against what was counted.
//!
//! That two are inside at once is no broken promise of a lock with a lease: every one of them says so. What each has promised is in its
//! capabilities and in the README of `lock`; the locks of the stories promise nothing but that a lock is not given twice while nothing is broken.

use serde::Serialize;

use super::{
    contestant::{Contestant, Home},
    fault::Fault,
    store::Row,
    trial::Counts,
};

/// What became of a lock under a fault.
#[derive(Debug, Clone)]
pub struct Cell {
    /// The lock.
    pub contestant: Contestant,
    /// What was done to it.
    pub fault: Fault,
    /// What was counted, or why nothing was.
    pub outcome: Outcome,
}

/// What was counted, or why nothing was.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// It was played.
    Counted(Box<Counts>),
    /// There is no such thing for this lock.
    NotApplicable(&'static str),
}

/// What became of what the lock protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// No write was lost, and none came too late and got in.
    Kept,
    /// One was, or did.
    Lost,
    /// The lock has no token, so the store has nothing to check.
    NoToken,
}

impl Fate {
    fn of(row: Row) -> Self {
        if row.is_harmed() {
            Self::Lost
        } else {
            Self::Kept
        }
    }

    /// In tables.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Lost => "lost",
            Self::NoToken => "no token",
        }
    }
}

impl Counts {
    /// Of the row of a store that takes every write.
    pub fn without_fence(&self) -> Fate {
        Fate::of(self.open)
    }

    /// Of the row of a store that checks token and version.
    pub fn with_fence(&self) -> Fate {
        self.fenced.map_or(Fate::NoToken, Fate::of)
    }
}

impl Cell {
    /// What the lock has promised and was seen not to keep.
    pub fn broken_promises(&self) -> Vec<&'static str> {
        match &self.outcome {
            Outcome::Counted(counts) => broken(self.contestant, self.fault, counts),
            Outcome::NotApplicable(_) => Vec::new(),
        }
    }
}

fn broken(contestant: Contestant, fault: Fault, counts: &Counts) -> Vec<&'static str> {
    let mut broken = Vec::new();
    let mut must = |holds: bool, otherwise| {
        if !holds {
            broken.push(otherwise);
        }
    };
    must(
        !counts.given_twice_without_a_fault,
        "it was given to a second one while nothing was broken",
    );
    let Some(promises) = counts.promises else {
        return broken;
    };
    must(
        !counts.third_let_in,
        "the release of a holder that had lost it let a third one in",
    );
    must(
        !fault.is_about_waiting() || counts.next_got_it,
        "nobody ever got it again",
    );
    must(
        fault != Fault::Partition || counts.holder_stopped,
        "the holder was not told that it is lost",
    );
    must(
        !(promises.clock_free && fault == Fault::Clock) || counts.inside_at_once < 2,
        "a clock decided when it ended",
    );
    if promises.fenced {
        must(
            counts.with_fence() == Fate::Kept,
            "something got past the fence",
        );
        must(
            rise(&counts.tokens) || may_forget(contestant, fault),
            "its tokens do not rise",
        );
        must(
            !counts.next_got_it || counts.fenced.is_some_and(|row| row.writes > 0),
            "the fence let nobody write",
        );
    }
    broken
}

fn rise(tokens: &[i64]) -> bool {
    tokens.windows(2).all(|pair| pair[0] < pair[1])
}

/// Where the only server that knows the last token loses it, and the documentation says so.
fn may_forget(contestant: Contestant, fault: Fault) -> bool {
    match contestant.home() {
        Home::OneRedis => matches!(fault, Fault::Failover | Fault::Restart),
        Home::Postgres | Home::MariaDb => fault == Fault::Failover,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{Cell, Contestant, Counts, Fault, Outcome, Row};
    use crate::matrix::contender::Promises;

    fn counts() -> Counts {
        let row = Row {
            writes: 1,
            stale_writes: 0,
            lost_updates: 0,
        };
        Counts {
            inside_at_once: 2,
            open: row,
            fenced: Some(row),
            next_got_it: true,
            next_after_seconds: None,
            third_let_in: false,
            holder_stopped: true,
            given_twice_without_a_fault: false,
            tokens: vec![1, 2],
            promises: Some(Promises {
                fenced: true,
                clock_free: true,
            }),
        }
    }

    fn broken(
        contestant: Contestant,
        fault: Fault,
        change: impl FnOnce(&mut Counts),
    ) -> Vec<&'static str> {
        let mut counts = counts();
        change(&mut counts);
        Cell {
            contestant,
            fault,
            outcome: Outcome::Counted(Box::new(counts)),
        }
        .broken_promises()
    }

    #[test]
    fn two_inside_after_a_pause_break_no_promise() {
        assert!(broken(Contestant::Redlock, Fault::Pause, |_| {}).is_empty());
    }

    #[test]
    fn each_promise_can_be_broken() {
        use Contestant::{Etcd, Redlock};
        type Change = fn(&mut Counts);
        let table: [(&str, Contestant, Fault, Change); 8] = [
            ("given to a second", Redlock, Fault::Pause, |counts| {
                counts.given_twice_without_a_fault = true
            }),
            ("a third one", Redlock, Fault::Pause, |counts| {
                counts.third_let_in = true
            }),
            ("nobody ever", Redlock, Fault::Kill, |counts| {
                counts.next_got_it = false
            }),
            ("not told", Redlock, Fault::Partition, |counts| {
                counts.holder_stopped = false
            }),
            ("a clock", Etcd, Fault::Clock, |_| {}),
            ("past the fence", Redlock, Fault::Pause, |counts| {
                counts.fenced = Some(Row {
                    stale_writes: 1,
                    ..counts.open
                })
            }),
            ("do not rise", Redlock, Fault::Restart, |counts| {
                counts.tokens = vec![3, 3]
            }),
            ("let nobody write", Redlock, Fault::Pause, |counts| {
                counts.fenced = Some(Row {
                    writes: 0,
                    ..counts.open
                })
            }),
        ];
        for (said, contestant, fault, change) in table {
            let broken = broken(contestant, fault, change);
            assert!(
                broken.len() == 1 && broken[0].contains(said),
                "{said}: {broken:?}"
            );
        }
    }

    #[test]
    fn one_redis_may_forget_its_tokens_where_it_says_so_and_nowhere_else() {
        let again = |counts: &mut Counts| counts.tokens = vec![6, 1, 7];
        assert!(broken(Contestant::Redis, Fault::Restart, again).is_empty());
        assert!(!broken(Contestant::Redis, Fault::Pause, again).is_empty());
    }

    #[test]
    fn a_lock_that_promises_nothing_is_held_to_exclusion_alone() {
        let naive = |counts: &mut Counts| {
            (counts.promises, counts.fenced, counts.third_let_in) = (None, None, true)
        };
        assert!(broken(Contestant::SetNxDel, Fault::Pause, naive).is_empty());
    }
}

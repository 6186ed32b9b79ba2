//! Compares what a lock promises with what an experiment counted.
//!
//! Two holders at the same time do not break a promise of a lock with a lease: no such lock
//! excludes that. The promises of each backend are in its capabilities and in the README of `lock`.
//! The baselines promise only that a lock has one holder while nothing fails.

use serde::Serialize;

use crate::{
    backend::{Backend, ServerKind},
    experiment::Counts,
    fault::Fault,
    store::RowHistory,
};

/// What a backend did under a fault.
#[derive(Debug, Clone)]
pub struct Cell {
    /// The lock.
    pub backend: Backend,
    /// The fault of the experiment.
    pub fault: Fault,
    /// Result of the experiment.
    pub outcome: Outcome,
}

/// Result of an experiment.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The experiment ran.
    Counted(Box<Counts>),
    /// This backend cannot have this fault, for this reason.
    NotApplicable(&'static str),
}

/// State of a protected row after an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Integrity {
    /// The row lost no update and accepted no stale write.
    Kept,
    /// The row lost an update or accepted a stale write.
    Lost,
    /// The lock has no token that the row could check.
    NoToken,
}

impl Integrity {
    fn of(row: RowHistory) -> Self {
        if row.is_harmed() {
            Self::Lost
        } else {
            Self::Kept
        }
    }

    /// Label in English tables.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Lost => "lost",
            Self::NoToken => "no token",
        }
    }
}

impl Counts {
    /// State of the row that accepts every write.
    pub fn without_fence(&self) -> Integrity {
        Integrity::of(self.unchecked)
    }

    /// State of the row that checks token and version.
    pub fn with_fence(&self) -> Integrity {
        self.fenced.map_or(Integrity::NoToken, Integrity::of)
    }
}

impl Cell {
    /// The promises that the experiment saw broken, each as a sentence.
    pub fn broken_promises(&self) -> Vec<&'static str> {
        match &self.outcome {
            Outcome::Counted(counts) => broken_promises(self.backend, self.fault, counts),
            Outcome::NotApplicable(_) => Vec::new(),
        }
    }
}

fn broken_promises(backend: Backend, fault: Fault, counts: &Counts) -> Vec<&'static str> {
    let mut broken = Vec::new();
    let mut expect = |holds: bool, otherwise| {
        if !holds {
            broken.push(otherwise);
        }
    };
    expect(
        !counts.double_grant_before_fault,
        "the lock was granted to a second contender before any fault",
    );
    let Some(promises) = counts.promises else {
        return broken;
    };
    expect(
        !counts.third_acquired,
        "the release of a lost lock let a third contender in",
    );
    expect(
        !fault.measures_wait() || counts.next_acquired,
        "the lock was never granted again",
    );
    expect(
        fault != Fault::Partition || counts.holder_stopped,
        "the lock did not report its loss to the holder",
    );
    expect(
        !(promises.clock_free && fault == Fault::Clock) || counts.concurrent_holders < 2,
        "a wall clock decided when the lock expired",
    );
    if promises.fenced {
        expect(
            counts.with_fence() == Integrity::Kept,
            "the fenced row lost an update or accepted a stale write",
        );
        expect(
            rise(&counts.tokens) || may_lose_tokens(backend, fault),
            "its tokens do not rise",
        );
        expect(
            !counts.next_acquired || counts.fenced.is_some_and(|row| row.writes > 0),
            "the fenced row accepted no write",
        );
    }
    broken
}

fn rise(tokens: &[i64]) -> bool {
    tokens.windows(2).all(|pair| pair[0] < pair[1])
}

/// Whether the fault removes the last token from the only server that stores it. The documentation
/// of these backends says so.
fn may_lose_tokens(backend: Backend, fault: Fault) -> bool {
    match backend.server_kind() {
        ServerKind::OneRedis => matches!(fault, Fault::Failover | Fault::Restart),
        ServerKind::Postgres | ServerKind::MariaDb => fault == Fault::Failover,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{Backend, Cell, Counts, Fault, Outcome, RowHistory};
    use crate::contender::Promises;

    fn counts() -> Counts {
        let row = RowHistory {
            writes: 1,
            stale_writes: 0,
            lost_updates: 0,
        };
        Counts {
            concurrent_holders: 2,
            unchecked: row,
            fenced: Some(row),
            next_acquired: true,
            next_wait_seconds: None,
            third_acquired: false,
            holder_stopped: true,
            double_grant_before_fault: false,
            tokens: vec![1, 2],
            promises: Some(Promises {
                fenced: true,
                clock_free: true,
            }),
        }
    }

    fn broken(
        backend: Backend,
        fault: Fault,
        change: impl FnOnce(&mut Counts),
    ) -> Vec<&'static str> {
        let mut counts = counts();
        change(&mut counts);
        Cell {
            backend,
            fault,
            outcome: Outcome::Counted(Box::new(counts)),
        }
        .broken_promises()
    }

    #[test]
    fn two_holders_after_a_pause_break_no_promise() {
        assert!(broken(Backend::Redlock, Fault::Pause, |_| {}).is_empty());
    }

    #[test]
    fn each_promise_can_be_broken() {
        use Backend::{Etcd, Redlock};
        type Change = fn(&mut Counts);
        let table: [(&str, Backend, Fault, Change); 8] = [
            ("granted to a second", Redlock, Fault::Pause, |counts| {
                counts.double_grant_before_fault = true
            }),
            ("a third contender", Redlock, Fault::Pause, |counts| {
                counts.third_acquired = true
            }),
            ("never granted", Redlock, Fault::Kill, |counts| {
                counts.next_acquired = false
            }),
            ("did not report", Redlock, Fault::Partition, |counts| {
                counts.holder_stopped = false
            }),
            ("a wall clock", Etcd, Fault::Clock, |_| {}),
            ("accepted a stale", Redlock, Fault::Pause, |counts| {
                counts.fenced = Some(RowHistory {
                    stale_writes: 1,
                    ..counts.unchecked
                })
            }),
            ("do not rise", Redlock, Fault::Restart, |counts| {
                counts.tokens = vec![3, 3]
            }),
            ("accepted no write", Redlock, Fault::Pause, |counts| {
                counts.fenced = Some(RowHistory {
                    writes: 0,
                    ..counts.unchecked
                })
            }),
        ];
        for (expected, backend, fault, change) in table {
            let broken = broken(backend, fault, change);
            assert!(
                broken.len() == 1 && broken[0].contains(expected),
                "{expected}: {broken:?}"
            );
        }
    }

    #[test]
    fn one_redis_may_lose_its_tokens_only_where_its_documentation_says_so() {
        let restarted = |counts: &mut Counts| counts.tokens = vec![6, 1, 7];
        assert!(broken(Backend::Redis, Fault::Restart, restarted).is_empty());
        assert!(!broken(Backend::Redis, Fault::Pause, restarted).is_empty());
    }

    #[test]
    fn a_lock_without_promises_is_checked_for_exclusion_only() {
        let hand_written = |counts: &mut Counts| {
            (counts.promises, counts.fenced, counts.third_acquired) = (None, None, true)
        };
        assert!(broken(Backend::SetNxDel, Fault::Pause, hand_written).is_empty());
    }
}

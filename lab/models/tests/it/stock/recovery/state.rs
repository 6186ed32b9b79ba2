//! The segment's history, the ledger, and how far the recorder and the repairers have come.

use super::{
    ledger::Ledger,
    segment::{Effect, Id, Op, Segment, Token},
};

/// The most repairers of a model. Their tokens are 1, 2, ...
pub const REPAIRERS: usize = 2;
/// The place of one more, who never runs but in a property: it comes after all others and is left
/// alone.
pub const LAST: usize = REPAIRERS;

/// What a repairer has decided: what the ledger is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RepairPlan {
    /// The ledger after it. Its checkpoint is the adjusted entry as soon as there is one.
    pub ledger: Ledger,
    /// The last entry that was read.
    pub last: Id,
    /// Whether the row has still the version that was read.
    pub is_current: bool,
}

/// How far a repairer has come. It can stop at any stage permanently: that is a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Stage {
    /// It does not have the lock yet.
    #[default]
    Waiting,
    /// It has claimed the item, and halts.
    Claimed,
    /// It has halted the segment with this entry, and reads.
    Halted(Id),
    /// It has read and decided, and restores.
    Decided(RepairPlan),
    /// It has restored, and adjusts.
    Restored(RepairPlan),
    /// It has adjusted, and commits.
    Adjusted(RepairPlan),
    /// It is through. It may begin again, under the same token.
    Done,
}

/// A reconciler at this procedure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Repairer {
    /// How far it has come.
    pub stage: Stage,
    /// An earlier round, whose `restore_orders` and `adjust` may still arrive.
    pub late: Option<RepairPlan>,
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// Every script that changed the segment, as the master of today knows it.
    pub history: Vec<Op>,
    /// The ledger.
    pub ledger: Ledger,
    /// What the recorder has read and is going to write, as long as the row has the version that it
    /// read.
    pub recorder: Option<Ledger>,
    /// Entries that a process has handed to its recorder, each with the one before it.
    pub fresh: Vec<(Id, Op)>,
    /// The repairers.
    pub repairers: [Repairer; REPAIRERS + 1],
    /// Failovers so far.
    pub failovers: u8,
    /// How often the segment was halted so far.
    pub halts: u8,
}

impl State {
    /// The segment was opened and that is recorded.
    pub fn initial(ledger: Ledger) -> Self {
        let opened = Op {
            id: 1,
            effect: Effect::Opened {
                units: ledger.available,
            },
        };
        Self {
            history: vec![opened],
            ledger: Ledger {
                checkpoint: 1,
                ..ledger
            },
            recorder: None,
            fresh: Vec::new(),
            repairers: Default::default(),
            failovers: 0,
            halts: 0,
        }
    }

    /// The segment as it is, if there is one.
    pub fn segment(&self) -> Option<Segment> {
        Segment::after(&self.history)
    }

    /// A script changes the segment. Returns the entry that it wrote.
    pub fn write(&mut self, effect: Effect) -> Id {
        let id = match effect {
            Effect::Restored(_) => 0,
            _ => 1 + self.ids().map(|id| *id).max().unwrap_or(0),
        };
        self.history.push(Op { id, effect });
        if id == 0 && Segment::after(&self.history[..self.history.len() - 1]) == self.segment() {
            // Who restores what is there already does nothing.
            self.history.pop();
        }
        id
    }

    /// The row changes: what others have decided on it will not be committed.
    pub fn change_ledger(&mut self, ledger: Ledger) {
        self.ledger = ledger;
        self.recorder = None;
        for decision in self.repairers.iter_mut().filter_map(Repairer::decision) {
            decision.is_current = false;
        }
    }

    /// The token of a repairer.
    pub fn token(repairer: usize) -> Token {
        repairer as Token + 1
    }

    /// The outbox: what left an entry.
    pub fn outbox(&self) -> impl Iterator<Item = Op> {
        self.history.iter().copied().filter(|op| op.id > 0)
    }

    /// The state without how ids came about: only which is the greater one of two can be observed.
    pub fn normalized(mut self) -> Self {
        let mut in_use = 1_u64;
        self.ids().for_each(|id| in_use |= 1 << *id);
        self.ids()
            .for_each(|id| *id = (in_use & ((1 << *id) - 1)).count_ones() as Id);
        self
    }

    fn ids(&mut self) -> impl Iterator<Item = &mut Id> {
        let repaired = self.repairers.iter_mut().flat_map(Repairer::ids);
        let recorded = self
            .recorder
            .iter_mut()
            .map(|ledger| &mut ledger.checkpoint);
        let history = self.history.iter_mut().map(|op| &mut op.id);
        let fresh = self.fresh.iter_mut();
        let fresh = fresh.flat_map(|(previous, op)| [previous, &mut op.id]);
        history
            .chain(fresh)
            .chain([&mut self.ledger.checkpoint])
            .chain(recorded)
            .chain(repaired)
    }
}

impl Repairer {
    /// What the round that is under way has decided.
    pub fn decision(&mut self) -> Option<&mut RepairPlan> {
        match &mut self.stage {
            Stage::Decided(decision) | Stage::Restored(decision) | Stage::Adjusted(decision) => {
                Some(decision)
            }
            Stage::Waiting | Stage::Claimed | Stage::Halted(_) | Stage::Done => None,
        }
    }

    fn ids(&mut self) -> impl Iterator<Item = &mut Id> {
        let Self { stage, late } = self;
        let (halted, decided) = match stage {
            Stage::Decided(decision) | Stage::Restored(decision) | Stage::Adjusted(decision) => {
                (None, Some(decision))
            }
            Stage::Halted(entry) => (Some(entry), None),
            Stage::Waiting | Stage::Claimed | Stage::Done => (None, None),
        };
        let decisions = decided.into_iter().chain(late.as_mut());
        let decided =
            decisions.flat_map(|decision| [&mut decision.last, &mut decision.ledger.checkpoint]);
        halted.into_iter().chain(decided)
    }

    /// The round is over, and what it has sent may still arrive.
    pub fn end_round(&mut self, stage: Stage) {
        if let Some(decision) = self.decision().copied() {
            // Which row it was decided on does not matter any more: it will never be committed.
            let ledger = Ledger {
                checkpoint: 0,
                fence: 0,
                ..decision.ledger
            };
            self.late = Some(RepairPlan {
                ledger,
                is_current: false,
                ..decision
            });
        }
        self.stage = stage;
    }
}

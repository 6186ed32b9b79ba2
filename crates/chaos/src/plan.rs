//! What is done to what, and when: all of it from the seed.
//!
//! What a reader could get wrong: the seed fixes what is decided here and by the crowd, not how the system's threads and sockets then
//! interleave. The same seed does the same things to the same servers after the same number of acknowledgements; a race that one run
//! loses another may win.

use std::{collections::BTreeMap, time::Duration};

use rand::{RngExt, SeedableRng, rngs::StdRng, seq::SliceRandom};

use crate::fault::{Fault, StageKind};

/// Rounds that one stage has to stand. Then it is taken down and another is built, so that what a round leaves behind stays small.
const ROUNDS_OF_A_LEG: usize = 12;

/// Everything that a run does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Where it comes from.
    pub seed: u64,
    /// One stage after the other.
    pub legs: Vec<Leg>,
}

/// What happens on one stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leg {
    /// Which number it has, from 1.
    pub number: usize,
    /// What it runs on.
    pub stage: StageKind,
    /// Its faults, in order.
    pub rounds: Vec<Round>,
}

/// A crowd, one fault, and the judgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// Which number it has, from 1.
    pub number: usize,
    /// What is broken.
    pub fault: Fault,
    /// When: after so many acknowledgements.
    pub after: usize,
    /// How long it lasts.
    pub lasts: Duration,
    /// Where everything else comes from.
    seed: u64,
}

impl Round {
    /// Dice for one purpose: what one purpose throws does not change what another gets.
    pub fn dice(&self, purpose: &str) -> StdRng {
        dice(self.seed, purpose)
    }
}

impl Plan {
    /// So many faults, of these kinds, each kind as often as any other.
    pub fn new(seed: u64, faults: usize, kinds: &[Fault], stages: &[StageKind]) -> Self {
        let mut rng = dice(seed, "plan");
        let mut queues = BTreeMap::<StageKind, Vec<Fault>>::new();
        for fault in deal(&mut rng, faults, kinds, stages) {
            let possible: Vec<_> = fault
                .stages()
                .iter()
                .filter(|stage| stages.contains(stage))
                .collect();
            queues
                .entry(*possible[rng.random_range(0..possible.len())])
                .or_default()
                .push(fault);
        }
        let mut legs: Vec<_> = queues
            .into_iter()
            .flat_map(|(stage, faults)| cut(stage, &faults))
            .collect();
        legs.shuffle(&mut rng);
        Self {
            seed,
            legs: number(seed, &mut rng, legs),
        }
    }

    /// The same faults, sooner and shorter, for whoever has a minute.
    pub fn hastened(mut self) -> Self {
        for round in self.legs.iter_mut().flat_map(|leg| &mut leg.rounds) {
            round.after = round.after.min(40);
            round.lasts = round.lasts.min(Duration::from_millis(400));
        }
        self
    }

    /// How many faults.
    pub fn faults(&self) -> usize {
        self.legs.iter().map(|leg| leg.rounds.len()).sum()
    }
}

/// Like cards: no kind comes a third time before every kind has come twice.
fn deal(rng: &mut StdRng, faults: usize, kinds: &[Fault], stages: &[StageKind]) -> Vec<Fault> {
    let mut kinds: Vec<_> = kinds
        .iter()
        .copied()
        .filter(|kind| kind.stages().iter().any(|stage| stages.contains(stage)))
        .collect();
    let mut dealt = Vec::new();
    while dealt.len() < faults && !kinds.is_empty() {
        kinds.shuffle(rng);
        dealt.extend(kinds.iter().take(faults - dealt.len()));
    }
    dealt
}

fn cut(stage: StageKind, faults: &[Fault]) -> Vec<(StageKind, Vec<Fault>)> {
    let legs = faults.len().div_ceil(ROUNDS_OF_A_LEG).max(1);
    faults
        .chunks(faults.len().div_ceil(legs).max(1))
        .map(|chunk| (stage, chunk.to_vec()))
        .collect()
}

fn number(seed: u64, rng: &mut StdRng, legs: Vec<(StageKind, Vec<Fault>)>) -> Vec<Leg> {
    let mut rounds = 0;
    let mut round = |fault| {
        rounds += 1;
        let (after, lasts) = (
            rng.random_range(20..=400),
            Duration::from_millis(rng.random_range(50..=1500)),
        );
        Round {
            number: rounds,
            fault,
            after,
            lasts,
            seed: hash(seed, &format!("round {rounds}")),
        }
    };
    let leg = |(index, (stage, faults)): (usize, (StageKind, Vec<Fault>))| Leg {
        number: index + 1,
        stage,
        rounds: faults.into_iter().map(&mut round).collect(),
    };
    legs.into_iter().enumerate().map(leg).collect()
}

/// Dice that nothing else throws.
pub fn dice(seed: u64, purpose: &str) -> StdRng {
    StdRng::seed_from_u64(hash(seed, purpose))
}

/// FNV-1a: the standard library's hash may be another one in another release.
fn hash(seed: u64, purpose: &str) -> u64 {
    let bytes = seed.to_le_bytes().into_iter().chain(purpose.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::Plan;
    use crate::fault::{Fault, StageKind};

    fn plan(seed: u64, faults: usize) -> Plan {
        Plan::new(seed, faults, &Fault::ALL, StageKind::value_variants())
    }

    #[test]
    fn the_same_seed_is_the_same_plan_and_another_is_another() {
        assert_eq!(plan(7, 100), plan(7, 100));
        assert_ne!(plan(7, 100), plan(8, 100));
    }

    #[test]
    fn every_kind_comes_as_often_as_any_other_and_where_it_can_happen() {
        let plan = plan(7, 100);
        assert_eq!(plan.faults(), 100);
        for fault in Fault::ALL {
            let times = plan
                .legs
                .iter()
                .flat_map(|leg| &leg.rounds)
                .filter(|round| round.fault == fault)
                .count();
            assert!((7..=8).contains(&times), "{fault}: {times}");
        }
        for leg in &plan.legs {
            assert!(
                leg.rounds
                    .iter()
                    .all(|round| round.fault.stages().contains(&leg.stage)),
                "{leg:?}"
            );
            assert!((1..=super::ROUNDS_OF_A_LEG).contains(&leg.rounds.len()));
        }
    }

    #[test]
    fn what_cannot_happen_on_the_stages_at_hand_is_left_out() {
        let plan = Plan::new(1, 20, &Fault::ALL, &[StageKind::Embedded]);
        assert!(plan.legs.iter().all(|leg| leg.stage == StageKind::Embedded));
        assert_eq!(plan.faults(), 20);
    }
}

//! The plan of a run: which faults are injected where and when, derived from the seed.
//!
//! The seed fixes the decisions of the plan and of the workload. It does not fix how threads and
//! packets interleave. Two runs with one seed inject the same faults into the same servers after
//! the same number of acknowledgements, but a race can end differently.

use std::{collections::BTreeMap, time::Duration};

use rand::{RngExt, SeedableRng, rngs::StdRng, seq::SliceRandom};

use crate::{
    fault::{Fault, Topology},
    subscribers::BrokerKind,
};

/// Number of rounds in one environment. A new one then replaces it, so that the data of old rounds
/// stays small.
const BATCH_ROUNDS_MAX: usize = 12;
const WORKERS: usize = 16;
/// The suite has other tests beside it, which need the processor too.
const WORKERS_OF_SUITE: usize = 5;
const PAUSE_FACTOR_OF_SUITE: u32 = 8;

/// All faults of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed that the plan is derived from.
    pub seed: u64,
    /// The batches, in order.
    pub batches: Vec<Batch>,
}

/// The rounds of one environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The number of the batch, from 1.
    pub number: usize,
    /// The servers of the environment.
    pub topology: Topology,
    /// The brokers that get every event, as far as the program has them.
    pub brokers: Vec<BrokerKind>,
    /// The rounds, in order.
    pub rounds: Vec<Round>,
}

/// One fault during a workload, and the verdict about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// The number of the round, from 1.
    pub number: usize,
    /// The fault to inject.
    pub fault: Fault,
    /// Number of acknowledgements after which the fault begins.
    pub after: usize,
    /// How long the fault lasts, before adjustment by its kind.
    pub lasts: Duration,
    /// Number of orders and carts that are being placed concurrently.
    pub workers: usize,
    /// How many times as long as usual a worker pauses after an order, and an attacker after the end of
    /// its connection.
    pub pause_factor: u32,
    /// When the service counts as healthy.
    pub health: Health,
    /// The seed of all other decisions.
    seed: u64,
}

/// When the service counts as healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Time for which a request is repeated until its outcome is known. No fault lasts as long.
    pub answered_within: Duration,
    /// A healthy service places an order faster than this.
    pub order_within: Duration,
    /// Time after the fault within which it is healthy. A fault that only refuses leaves nothing to
    /// start, to elect or to repair.
    pub healed_within: Duration,
    /// Time within which holds end, units return and transfers arrive, the rest is bought, and all
    /// items of a batch pass their final audit.
    pub quiet_within: Duration,
}

/// On a machine that does nothing else.
const HEALTH: Health = Health {
    answered_within: Duration::from_secs(45),
    order_within: Duration::from_millis(700),
    healed_within: Duration::from_secs(40),
    quiet_within: Duration::from_secs(30),
};
/// For [refusals](Fault::is_refusal), which every process has survived.
const HEALED_FROM_REFUSAL_WITHIN: Duration = Duration::from_secs(5);

impl Health {
    fn after(fault: Fault) -> Self {
        let healed_within = if fault.is_refusal() {
            HEALED_FROM_REFUSAL_WITHIN
        } else {
            HEALTH.healed_within
        };
        Self {
            healed_within,
            ..HEALTH
        }
    }
}

impl Round {
    /// A generator for one purpose. Draws for one purpose do not change those for another.
    pub fn rng(&self, purpose: &str) -> StdRng {
        seeded_rng(self.seed, purpose)
    }

    /// The id of an item of this round.
    pub fn item(&self, name: &str) -> String {
        format!("{name}-{}", self.number)
    }
}

impl Plan {
    /// Plans this number of faults in these topologies, each kind equally often.
    pub fn new(seed: u64, faults: usize, kinds: &[Fault], topologies: &[Topology]) -> Self {
        let mut rng = seeded_rng(seed, "plan");
        let mut queues = BTreeMap::<Topology, Vec<Fault>>::new();
        let mut undealt = BTreeMap::<Fault, Vec<Topology>>::new();
        for fault in deal(&mut rng, faults, kinds, topologies) {
            // No topology has a kind a second time before all of them have had it.
            let undealt = undealt.entry(fault).or_default();
            if undealt.is_empty() {
                let possible = fault.topologies().iter().copied();
                undealt.extend(possible.filter(|topology| topologies.contains(topology)));
                undealt.shuffle(&mut rng);
            }
            if let Some(topology) = undealt.pop() {
                queues.entry(topology).or_default().push(fault);
            }
        }
        let mut batches: Vec<_> = queues
            .into_iter()
            .flat_map(|(topology, faults)| cut(topology, &faults))
            .collect();
        batches.shuffle(&mut rng);
        Self {
            seed,
            batches: number(seed, &mut rng, batches),
        }
    }

    /// The same faults, earlier, shorter and with fewer orders, for the test suite. The service
    /// must heal as well, but a busy machine may take longer. RabbitMQ takes seconds to start, so
    /// one topology has it.
    pub fn shortened(mut self) -> Self {
        let others = |batch: &&mut Batch| batch.topology != Topology::Events;
        for batch in self.batches.iter_mut().filter(others) {
            batch.brokers.retain(|broker| *broker != BrokerKind::Amqp);
        }
        for round in self.batches.iter_mut().flat_map(|batch| &mut batch.rounds) {
            round.after = round.after.min(40);
            round.lasts = round.lasts.min(Duration::from_millis(400));
            round.workers = WORKERS_OF_SUITE;
            round.pause_factor = PAUSE_FACTOR_OF_SUITE;
            round.health = Health {
                answered_within: testbed::timeout(),
                order_within: testbed::timeout(),
                healed_within: testbed::timeout(),
                quiet_within: testbed::timeout(),
            };
        }
        self
    }

    /// Number of faults.
    pub fn faults(&self) -> usize {
        self.batches.iter().map(|batch| batch.rounds.len()).sum()
    }
}

/// Deals faults like cards: no kind occurs a third time before every kind has occurred twice.
fn deal(rng: &mut StdRng, faults: usize, kinds: &[Fault], topologies: &[Topology]) -> Vec<Fault> {
    let mut kinds: Vec<_> = kinds
        .iter()
        .copied()
        .filter(|kind| {
            kind.topologies()
                .iter()
                .any(|topology| topologies.contains(topology))
        })
        .collect();
    let mut dealt = Vec::new();
    while dealt.len() < faults && !kinds.is_empty() {
        kinds.shuffle(rng);
        dealt.extend(kinds.iter().take(faults - dealt.len()));
    }
    dealt
}

fn cut(topology: Topology, faults: &[Fault]) -> Vec<(Topology, Vec<Fault>)> {
    let batches = faults.len().div_ceil(BATCH_ROUNDS_MAX).max(1);
    faults
        .chunks(faults.len().div_ceil(batches).max(1))
        .map(|chunk| (topology, chunk.to_vec()))
        .collect()
}

fn number(seed: u64, rng: &mut StdRng, batches: Vec<(Topology, Vec<Fault>)>) -> Vec<Batch> {
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
            workers: WORKERS,
            pause_factor: 1,
            health: Health::after(fault),
            seed: hash(seed, &format!("round {rounds}")),
        }
    };
    let batch = |(index, (topology, faults)): (usize, (Topology, Vec<Fault>))| Batch {
        number: index + 1,
        topology,
        brokers: BrokerKind::ALL.into(),
        rounds: faults.into_iter().map(&mut round).collect(),
    };
    batches.into_iter().enumerate().map(batch).collect()
}

/// A generator that is independent of those for other purposes.
fn seeded_rng(seed: u64, purpose: &str) -> StdRng {
    StdRng::seed_from_u64(hash(seed, purpose))
}

/// FNV-1a. The standard library does not promise the same hash in every release.
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
    use crate::fault::{Fault, Topology};

    fn plan(seed: u64, faults: usize) -> Plan {
        Plan::new(seed, faults, &Fault::ALL, Topology::value_variants())
    }

    #[test]
    fn the_same_seed_is_the_same_plan_and_another_is_another() {
        assert_eq!(plan(7, 100), plan(7, 100));
        assert_ne!(plan(7, 100), plan(8, 100));
    }

    #[test]
    fn each_kind_occurs_equally_often_and_only_in_its_topologies() {
        let plan = plan(7, 100);
        assert_eq!(plan.faults(), 100);
        for fault in Fault::ALL {
            let times = plan
                .batches
                .iter()
                .flat_map(|batch| &batch.rounds)
                .filter(|round| round.fault == fault)
                .count();
            let share = 100 / Fault::ALL.len();
            assert!((share..=share + 1).contains(&times), "{fault}: {times}");
        }
        for batch in &plan.batches {
            assert!(
                batch
                    .rounds
                    .iter()
                    .all(|round| round.fault.topologies().contains(&batch.topology)),
                "{batch:?}"
            );
            assert!((1..=super::BATCH_ROUNDS_MAX).contains(&batch.rounds.len()));
        }
    }

    #[test]
    fn a_kind_comes_to_each_of_its_topologies_before_it_comes_again() {
        let times = 2 * Topology::value_variants().len();
        for fault in Fault::ALL {
            let plan = Plan::new(7, times, &[fault], Topology::value_variants());
            let of = |topology| {
                let batches = plan.batches.iter();
                let batches = batches.filter(|batch| batch.topology == topology);
                batches.map(|batch| batch.rounds.len()).sum::<usize>()
            };
            let share = times / fault.topologies().len();
            for topology in fault.topologies() {
                let dealt = of(*topology);
                assert!(
                    (share..=share + 1).contains(&dealt),
                    "{fault} in {topology}: {dealt}"
                );
            }
        }
    }

    #[test]
    fn refusals_must_heal_within_five_seconds() {
        let rounds = plan(7, 100)
            .batches
            .into_iter()
            .flat_map(|batch| batch.rounds);
        for round in rounds {
            let seconds = if round.fault.is_refusal() { 5 } else { 40 };
            assert_eq!(round.health.healed_within.as_secs(), seconds, "{round:?}");
        }
    }

    #[test]
    fn faults_that_the_chosen_topologies_lack_are_left_out() {
        let plan = Plan::new(1, 20, &Fault::ALL, &[Topology::Embedded]);
        assert!(
            plan.batches
                .iter()
                .all(|batch| batch.topology == Topology::Embedded)
        );
        assert_eq!(plan.faults(), 20);
    }
}

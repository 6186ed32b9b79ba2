//! What happens to events while another fault lasts: receivers that accept nothing, brokers that
//! are gone, a publisher that is killed or stopped.
//!
//! So each topology has these faults beside all of its others, and not only alone.

use anyhow::{Context, Result};
use rand::{RngExt, rngs::StdRng, seq::SliceRandom};
use testbed::Traffic;

use crate::{
    env::{LedgerServer, Role, TestEnv},
    fault::Fault,
    plan::Round,
    subscribers::{Behavior, Broker, BrokerKind},
};

/// What is wrong beside the fault of a round.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Beside {
    Nothing,
    /// Every receiver fails in all ways in turn.
    Receivers,
    /// Every broker is cut off.
    BrokersCut,
    /// Every broker is killed, or cut off.
    BrokersKilled,
    /// This process is stopped. The other publisher follows it, and both go on at the end.
    Stopped(usize),
    /// This process is killed.
    Killed(usize),
}

impl Beside {
    /// Every third round of a batch has the same.
    fn of(round: &Round, publishers: &[usize], can_stop: bool, rng: &mut StdRng) -> Self {
        // A wrong clock delays what is tried again by as much.
        if round.fault.is_of_events() || round.fault.needs_clock() {
            return Self::Nothing;
        }
        match round.number % 3 {
            0 => Self::Receivers,
            // The time to heal from a refusal is short, and has no room for the start of a server.
            1 if round.fault.is_refusal() => Self::BrokersCut,
            1 => Self::BrokersKilled,
            _ => Self::publisher(round.fault, publishers, can_stop, rng).unwrap_or(Self::Receivers),
        }
    }

    /// Kills a publisher if all stores stay as they are, so that it can start again.
    fn publisher(
        fault: Fault,
        publishers: &[usize],
        can_stop: bool,
        rng: &mut StdRng,
    ) -> Option<Self> {
        let victim = *publishers.get(rng.random_range(0..publishers.len().max(1)))?;
        if spares_stores(fault) {
            return Some(Self::Killed(victim));
        }
        can_stop.then_some(Self::Stopped(victim))
    }

    pub(super) async fn begin(env: &mut TestEnv, round: &Round) -> Result<Self> {
        let mut rng = round.rng("beside");
        let processes = env.processes.iter().enumerate();
        let publishers: Vec<_> = processes
            .filter(|(_, process)| process.role == Role::Publisher)
            .map(|(index, _)| index)
            .collect();
        // One that is stopped in a transaction would keep the only file of SQLite locked.
        let can_stop = matches!(env.ledger, LedgerServer::Postgres { .. });
        let beside = Self::of(round, &publishers, can_stop, &mut rng);
        match beside {
            Self::Nothing => {}
            Self::Receivers => {
                for receiver in &env.subscribers.receivers {
                    let mut behaviors = Behavior::FAILING.to_vec();
                    behaviors.extend([Behavior::Accept; 4]);
                    behaviors.shuffle(&mut rng);
                    receiver.behave(behaviors);
                }
            }
            Self::BrokersCut => set(env, Traffic::Reset),
            Self::BrokersKilled => {
                set(env, Traffic::Reset);
                for broker in killed(env) {
                    broker.kill().await?;
                }
            }
            Self::Stopped(victim) => env.processes[victim].daemon.pause().await?,
            Self::Killed(victim) => env.processes[victim].daemon.kill().await?,
        }
        Ok(beside)
    }

    /// Ends it, and describes it as the end of a sentence.
    pub(super) async fn end(self, env: &mut TestEnv) -> Result<String> {
        Ok(match self {
            Self::Nothing => String::new(),
            Self::Receivers => {
                for receiver in &env.subscribers.receivers {
                    receiver.behave(vec![Behavior::Accept]);
                }
                "; beside it, receivers failed in all ways".into()
            }
            Self::BrokersCut => {
                set(env, Traffic::Pass);
                "; beside it, all brokers were cut off".into()
            }
            Self::BrokersKilled => {
                for broker in killed(env) {
                    let kind = broker.kind;
                    let restarted = broker.restart().await;
                    restarted
                        .with_context(|| format!("the broker {kind} could not be restarted"))?;
                }
                set(env, Traffic::Pass);
                "; beside it, all brokers were gone".into()
            }
            Self::Stopped(victim) => {
                env.processes[victim].daemon.resume().await?;
                format!("; beside it, {} was stopped", env.names(&[victim]))
            }
            Self::Killed(victim) => {
                env.processes[victim].daemon.restart().await?;
                format!("; beside it, {} was killed", env.names(&[victim]))
            }
        })
    }
}

fn spares_stores(fault: Fault) -> bool {
    matches!(
        fault,
        Fault::OrderServiceKilled
            | Fault::RecorderKilled
            | Fault::ReconcilerKilled
            | Fault::ReconcilerStopped
            | Fault::SlowReader
            | Fault::ConnectionFlood
    )
}

/// RabbitMQ takes seconds to start, so it is only cut off.
fn killed(env: &mut TestEnv) -> impl Iterator<Item = &mut Broker> {
    let brokers = env.subscribers.brokers.iter_mut();
    brokers.filter(|broker| broker.kind != BrokerKind::Amqp)
}

fn set(env: &TestEnv, traffic: Traffic) {
    let brokers = env.subscribers.brokers.iter();
    brokers.for_each(|broker| broker.proxy.set(traffic));
}

#[cfg(test)]
mod tests {
    use super::Beside;
    use crate::{
        fault::{Fault, Topology},
        plan::{Plan, Round},
    };

    const PUBLISHERS: [usize; 2] = [6, 7];

    fn rounds(fault: Fault) -> Vec<Round> {
        let plan = Plan::new(7, 3, &[fault], &[Topology::Server]);
        let batches = plan.batches.into_iter();
        batches.flat_map(|batch| batch.rounds).collect()
    }

    fn beside(round: &Round, can_stop: bool) -> Beside {
        Beside::of(round, &PUBLISHERS, can_stop, &mut round.rng("beside"))
    }

    #[test]
    fn three_rounds_have_failing_receivers_brokers_and_publishers_beside_them() {
        let all = |fault: Fault| {
            let rounds = rounds(fault);
            assert_eq!(rounds.len(), 3);
            let all: Vec<_> = rounds.iter().map(|round| beside(round, true)).collect();
            assert!(all.contains(&Beside::Receivers), "{fault}: {all:?}");
            all
        };
        let is_stopped = |beside: &Beside| matches!(beside, Beside::Stopped(6 | 7));
        let is_killed = |beside: &Beside| matches!(beside, Beside::Killed(6 | 7));
        let of_stores = all(Fault::PostgresKilled);
        assert!(of_stores.contains(&Beside::BrokersKilled), "{of_stores:?}");
        assert!(of_stores.iter().any(is_stopped), "{of_stores:?}");
        let of_processes = all(Fault::RecorderKilled);
        assert!(of_processes.iter().any(is_killed), "{of_processes:?}");
        // Nothing starts, so that all processes heal in time, and without a restart.
        let of_refusals = all(Fault::PasswordBlip);
        assert!(of_refusals.contains(&Beside::BrokersCut), "{of_refusals:?}");
        assert!(of_refusals.iter().any(is_stopped), "{of_refusals:?}");
    }

    #[test]
    fn a_publisher_of_a_file_is_not_stopped() {
        for round in rounds(Fault::PostgresKilled) {
            let beside = beside(&round, false);
            assert!(!matches!(beside, Beside::Stopped(_)), "{beside:?}");
        }
    }

    #[test]
    fn faults_of_events_have_none_beside_them() {
        for fault in Fault::ALL.into_iter().filter(|fault| fault.is_of_events()) {
            for round in rounds(fault) {
                assert_eq!(beside(&round, true), Beside::Nothing);
            }
        }
    }
}

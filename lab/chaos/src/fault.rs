//! The faults, and the topologies in which each can be injected.

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

/// The servers that the processes of Stockade run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Topology {
    /// One Redis server and PostgreSQL, with a proxy between each process and each server.
    Server,
    /// A Redis master, two replicas and three sentinels, and PostgreSQL.
    Sentinel,
    /// A Redis Cluster of three masters with a replica each, and PostgreSQL.
    Cluster,
    /// `stockade up`: every role in one process, SQLite, and one Redis server. A second publisher
    /// opens the same file.
    Embedded,
    /// As `Server`. Its faults are those of stores, publishers, receivers and brokers.
    Events,
}

impl Topology {
    /// Whether one Redis server has all of the stock.
    pub fn has_one_redis(self) -> bool {
        matches!(self, Self::Server | Self::Embedded | Self::Events)
    }

    /// Whether reconcilers audit what has changed, as they do with items of many orders. In the
    /// others they read all orders each time, as they do with small ones.
    pub fn audits_changes(self) -> bool {
        matches!(self, Self::Server | Self::Sentinel | Self::Embedded)
    }
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// kill -9 of an order service.
    OrderServiceKilled,
    /// kill -9 of a recorder.
    RecorderKilled,
    /// kill -9 of a reconciler.
    ReconcilerKilled,
    /// kill -9 of all processes of Stockade together.
    EverythingKilled,
    /// kill -9 of the Redis server, which has an append-only file.
    RedisKilled,
    /// kill -9 of PostgreSQL, all of its processes.
    PostgresKilled,
    /// SIGSTOP of a reconciler until the lease of its lock has expired.
    ReconcilerStopped,
    /// kill -9 of the master while its replicas lag; Sentinel promotes one of them.
    SentinelFailover,
    /// kill -9 of a cluster master; its replica, which sometimes lags, is promoted.
    ClusterMasterKilled,
    /// A partition between processes of Stockade and Redis, in one direction or both.
    RedisCut,
    /// A partition between processes of Stockade and SQL, in one direction or both.
    LedgerCut,
    /// The disk of the ledger is full.
    LedgerDiskFull,
    /// Redis has reached its `maxmemory`.
    RedisOutOfMemory,
    /// The clock of a lock node jumps.
    LockClockJump,
    /// Clients send requests to an order service, and read no answer.
    SlowReader,
    /// Hundreds of connections to an order service send nothing.
    ConnectionFlood,
    /// Hundreds of connections to an order service send a head and half of a body.
    HalfBodies,
    /// Slots with stock move, key by key, to a master that joins the cluster.
    SlotMigration,
    /// The clock of a process of Stockade jumps.
    ProcessClockJump,
    /// The clock of the Redis server jumps.
    RedisClockJump,
    /// The clock of PostgreSQL jumps.
    LedgerClockJump,
    /// kill -9 of a publisher.
    PublisherKilled,
    /// Receivers of webhooks fail, redirect, hang, answer late, or drop the connection.
    ReceiversFailing,
    /// kill -9 of brokers that get events.
    BrokerKilled,
    /// A partition between the publishers and brokers, in one direction or both.
    BrokerCut,
    /// Redis refuses the right password for a while, also the lock nodes, and cuts connections.
    PasswordBlip,
    /// A Redis server comes back without the user of Stockade, who is created a while later.
    AclLate,
    /// A replica becomes the master while the old master stays up with its connections.
    AddressFailover,
    /// The address of the ledger leads to a standby for a while.
    LedgerStandby,
}

impl Fault {
    /// All kinds.
    pub const ALL: [Self; 29] = [
        Self::OrderServiceKilled,
        Self::RecorderKilled,
        Self::ReconcilerKilled,
        Self::EverythingKilled,
        Self::RedisKilled,
        Self::PostgresKilled,
        Self::ReconcilerStopped,
        Self::SentinelFailover,
        Self::ClusterMasterKilled,
        Self::RedisCut,
        Self::LedgerCut,
        Self::LedgerDiskFull,
        Self::RedisOutOfMemory,
        Self::LockClockJump,
        Self::SlowReader,
        Self::ConnectionFlood,
        Self::HalfBodies,
        Self::SlotMigration,
        Self::ProcessClockJump,
        Self::RedisClockJump,
        Self::LedgerClockJump,
        Self::PublisherKilled,
        Self::ReceiversFailing,
        Self::BrokerKilled,
        Self::BrokerCut,
        Self::PasswordBlip,
        Self::AclLate,
        Self::AddressFailover,
        Self::LedgerStandby,
    ];

    /// The topologies in which the fault can be injected.
    pub fn topologies(self) -> &'static [Topology] {
        use Topology::{Cluster, Embedded, Events, Sentinel, Server};
        match self {
            Self::OrderServiceKilled | Self::ReconcilerKilled => &[Server, Sentinel, Cluster],
            Self::EverythingKilled
            | Self::PasswordBlip
            | Self::AclLate
            | Self::AddressFailover
            | Self::PublisherKilled
            | Self::ReceiversFailing
            | Self::BrokerKilled
            | Self::BrokerCut => &[Server, Sentinel, Cluster, Embedded, Events],
            Self::RedisOutOfMemory
            | Self::LockClockJump
            | Self::ProcessClockJump
            | Self::SlowReader
            | Self::ConnectionFlood
            | Self::HalfBodies => &[Server, Sentinel, Cluster, Embedded],
            Self::ReconcilerStopped => &[Server, Cluster],
            Self::RedisKilled | Self::RedisCut => &[Server, Embedded],
            Self::RedisClockJump => &[Server, Sentinel, Cluster, Embedded],
            // An SQLite file has no address and no standby.
            Self::RecorderKilled | Self::PostgresKilled | Self::LedgerCut | Self::LedgerStandby => {
                &[Server, Sentinel, Cluster, Events]
            }
            Self::LedgerClockJump => &[Server, Sentinel, Cluster],
            Self::LedgerDiskFull => &[Server, Embedded],
            Self::SentinelFailover => &[Sentinel],
            Self::ClusterMasterKilled | Self::SlotMigration => &[Cluster],
        }
    }

    /// Whether it needs a clock that jumps.
    pub fn needs_clock(self) -> bool {
        matches!(
            self,
            Self::LockClockJump
                | Self::ProcessClockJump
                | Self::RedisClockJump
                | Self::LedgerClockJump
        )
    }

    /// Whether a store refuses, or another server answers for it, while every process of Stockade
    /// runs. The connections must heal, quickly and without a restart.
    pub fn is_refusal(self) -> bool {
        matches!(
            self,
            Self::PasswordBlip | Self::AclLate | Self::AddressFailover | Self::LedgerStandby
        )
    }

    /// Whether it is a fault of publishers, receivers or brokers.
    pub fn is_of_events(self) -> bool {
        matches!(
            self,
            Self::PublisherKilled | Self::ReceiversFailing | Self::BrokerKilled | Self::BrokerCut
        )
    }

    /// Whether Redis may lose acknowledged writes. Orders that are acknowledged before the ledger
    /// has recorded them may be lost with these writes.
    pub fn may_lose_redis_writes(self) -> bool {
        matches!(self, Self::SentinelFailover | Self::ClusterMasterKilled)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name_of(self))
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name_of(self))
    }
}

fn name_of(value: &impl ValueEnum) -> String {
    value
        .to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::{Fault, Topology};

    #[test]
    fn the_page_describes_every_fault_and_topology() {
        let page = include_str!("../../../docs/chaos.md");
        let faults = Fault::ALL.iter().map(ToString::to_string);
        let topologies = Topology::value_variants().iter().map(ToString::to_string);
        for name in faults.chain(topologies) {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn events_meet_every_fault_of_theirs_in_every_topology() {
        for topology in Topology::value_variants() {
            let has = |fault: &Fault| fault.topologies().contains(topology);
            let mut of_events = Fault::ALL.iter().filter(|fault| fault.is_of_events());
            assert!(of_events.all(has), "{topology}");
            // An SQLite file has no standby. It fails with its disk.
            let of_ledger: &[_] = match topology {
                Topology::Embedded => &[Fault::LedgerDiskFull],
                _ => &[
                    Fault::PostgresKilled,
                    Fault::LedgerCut,
                    Fault::LedgerStandby,
                ],
            };
            assert!(of_ledger.iter().all(has), "{topology}");
        }
    }

    #[test]
    fn every_store_that_can_refuse_does_so_in_every_topology() {
        for topology in Topology::value_variants() {
            for fault in Fault::ALL.into_iter().filter(|fault| fault.is_refusal()) {
                // `stockade up` opens a file.
                let is_possible = (fault, *topology) != (Fault::LedgerStandby, Topology::Embedded);
                assert_eq!(
                    fault.topologies().contains(topology),
                    is_possible,
                    "{fault} in {topology}"
                );
            }
        }
    }
}

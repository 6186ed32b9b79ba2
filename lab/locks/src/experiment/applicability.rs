//! Which backend can have which fault, and the lease of each experiment.

use std::time::Duration;

use crate::{
    backend::{Backend, ServerKind},
    fault::Fault,
};

/// Longest time that PostgreSQL may take to notice that its clock has jumped.
pub(super) const POSTGRES_CLOCK_TIMEOUT: Duration = Duration::from_secs(20);
/// Lease while a database restarts, which takes longer than a Redis restart.
const DATABASE_LEASE: Duration = Duration::from_secs(20);

/// Why this backend cannot have this fault; `None` if it can.
pub fn not_applicable(backend: Backend, fault: Fault) -> Option<&'static str> {
    match (backend.server_kind(), fault) {
        (
            ServerKind::Sqlite,
            Fault::Failover | Fault::Restart | Fault::Partition | Fault::LostAnswer,
        ) => Some("a file has no server that could fail or become unreachable"),
        (ServerKind::Etcd, Fault::Clock) => Some(
            "its leases use the monotonic clock, and the library that shifts clocks does not work for a Go program",
        ),
        (ServerKind::Etcd | ServerKind::ZooKeeper, Fault::Failover) => Some(
            "a majority stores every acknowledged lock, so a lagging replica is never elected; here one server runs without a replica",
        ),
        _ => None,
    }
}

/// The lease of the locks of an experiment. New Redlock nodes vote only after one lease, so the
/// lease of a Redlock is as short as the experiment allows.
pub(super) fn lease_for(backend: Backend, fault: Fault) -> Duration {
    if notices_clock_late(backend, fault) {
        2 * POSTGRES_CLOCK_TIMEOUT
    } else if fault.leaves_servers_intact() || backend.server_kind() == ServerKind::FiveRedis {
        fault.lease()
    } else {
        DATABASE_LEASE
    }
}

/// PostgreSQL checks the timeout of an idle session only when some timer of that session fires,
/// which can take seconds.
pub(super) fn notices_clock_late(backend: Backend, fault: Fault) -> bool {
    backend.server_kind() == ServerKind::Postgres && fault == Fault::Clock
}

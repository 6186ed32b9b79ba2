//! Fixtures that the tests of several crates share.
//!
//! Tests run against real servers. All tests of one test binary share one Redis server, one Redis
//! Cluster and one PostgreSQL server; tests that break a server start their own. A fixture panics
//! when it fails, because a test cannot continue without it.
//!
//! | module | contents | feature |
//! |---|---|---|
//! | [`servers`] | the servers that all tests of a binary share | |
//! | [`logs`] | what the code under test logs | |
//! | [`items`] | items, buyers and orders with distinct names | |
//! | [`program`] | the program `stockade`: lookup, command, output | |
//! | `database` | a ledger database in SQLite or PostgreSQL | `ledger` |
//! | `env` | `TestEnv`: Redis, a ledger, and the services between them | `services` |
//! | `sale` | `Sale`: an item on sale, its buyers and its audit | `services` |
//!
//! Product crates use this crate as a dev-dependency only.

#![allow(
    clippy::unwrap_used,
    reason = "a test cannot continue without its fixture"
)]

#[cfg(feature = "ledger")]
pub mod database;
#[cfg(feature = "services")]
pub mod env;
pub mod items;
pub mod logs;
pub mod program;
#[cfg(feature = "services")]
pub mod sale;
pub mod servers;

#[cfg(feature = "ledger")]
pub use database::{Backend, Database};
#[cfg(feature = "reconciler")]
pub use env::shared_lock;
#[cfg(feature = "services")]
pub use env::{Running, TestEnv};
pub use items::{buyer, fresh_item_id, item};
pub use logs::show_logs;
#[cfg(feature = "services")]
pub use sale::{Sale, is_held};
pub use servers::{postgres_database, shared_cluster, shared_redis};
pub use testbed::{Deadline, eventually, eventually_some, in_time, timeout};
pub use testkit_macros::{tested, tested_in};

/// Makes two tests of a function: with a ledger in SQLite and in PostgreSQL.
///
/// `#[tested(on_both_databases(run))]` stands above the function, which `run` receives with the
/// `Backend`.
#[macro_export]
macro_rules! on_both_databases {
    ($test:ident ($run:path)) => {
        mod $test {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                $run($crate::Backend::Sqlite, super::$test).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                $run($crate::Backend::Postgres, super::$test).await;
            }
        }
    };
}

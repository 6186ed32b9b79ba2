//! Migrations, on PostgreSQL.
//!
//! They have a connection of their own. One of several processes migrates, and the others wait for
//! it as long as it takes. A statement that builds an index takes long as well. A statement that
//! waits for a table makes all later ones wait behind it, so it gives up soon, and is tried again
//! after a pause.
//!
//! An index of a large table is built beside a sale, by a migration of its own outside of a
//! transaction (`-- no-transaction`, one statement). Such a statement waits until every older
//! snapshot is gone, so whatever waits for the migration must not have one.

use std::time::Duration;

use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, PgConnection,
    migrate::{Migrate, Migrator},
    postgres::PgConnectOptions,
};

use tokio::time::timeout;

use super::session::{self, Limits, Plans};
use crate::{LedgerError, StatementLimits, TimeLimit, migrations};

/// The advisory lock of the process whose turn it is.
const TURN: i64 = 0x0073_746f_636b_6164;
/// How often a process asks for its turn.
const TURN_POLL: Duration = Duration::from_millis(100);

/// How often a migration that does not get its locks is tried.
const ATTEMPTS_MAX: u32 = 10;
/// For the statements that have waited behind it.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

const UNLIMITED: Limits = Limits {
    statement: None,
    lock: None,
};

/// Runs the missing migrations. Those that have ended stay, whatever becomes of the next one.
pub(super) async fn run(
    options: &PgConnectOptions,
    limits: StatementLimits,
) -> Result<(), LedgerError> {
    let connected = timeout(limits.statement, options.connect()).await;
    let mut connection = connected.map_err(|_| LedgerError::NoAnswer(limits.statement))??;
    session::set_up(&mut connection, Plans::ByIndex, UNLIMITED).await?;
    take_turn(&mut connection).await?;
    let migrated = run_stages(&mut connection, limits).await;
    // The end of the connection unlocks as well, for one that was lost.
    end_turn(&mut connection).await;
    let _ = connection.close().await;
    migrated
}

/// Waits for the processes that migrate. A statement that waited for the lock would have a
/// snapshot, for which an index that is being built beside a sale would wait in turn.
async fn take_turn(connection: &mut PgConnection) -> Result<(), LedgerError> {
    let ask = "SELECT pg_try_advisory_lock($1)";
    while !sqlx::query_scalar::<_, bool>(ask)
        .bind(TURN)
        .fetch_one(&mut *connection)
        .await?
    {
        tokio::time::sleep(TURN_POLL).await;
    }
    Ok(())
}

async fn end_turn(connection: &mut PgConnection) {
    let unlock = sqlx::query("SELECT pg_advisory_unlock($1)").bind(TURN);
    let _ = unlock.execute(connection).await;
}

async fn run_stages(
    connection: &mut PgConnection,
    limits: StatementLimits,
) -> Result<(), LedgerError> {
    let mut migrator = migrations::postgres();
    migrator.set_locking(false);
    for target in stages(&migrator) {
        if target.is_in_transaction {
            run_locked(connection, &migrator, target, limits).await?;
        } else {
            session::limit(connection, UNLIMITED).await?;
            drop_half_built(connection, &migrator, target.version).await?;
            run_stage(connection, &migrator, target.version).await?;
        }
    }
    Ok(())
}

/// Earlier releases know no turn. They wait for this lock, with a snapshot, so a stage that builds
/// an index beside a sale goes without it. It leaves them nothing to do but that stage, which they
/// do not know.
async fn run_locked(
    connection: &mut PgConnection,
    migrator: &Migrator,
    target: Stage,
    limits: StatementLimits,
) -> Result<(), LedgerError> {
    session::limit(connection, UNLIMITED).await?;
    connection.lock().await.map_err(LedgerError::migration)?;
    let lock = Some(limits.lock);
    session::limit(connection, Limits { lock, ..UNLIMITED }).await?;
    let run = run_stage(connection, migrator, target.version).await;
    let _ = connection.unlock().await;
    run
}

/// Migrations up to this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stage {
    version: i64,
    is_in_transaction: bool,
}

/// Consecutive migrations of a kind: those outside of a transaction build an index beside a sale.
/// They wait for all older transactions, and leave half an index if they are ended.
fn stages(migrator: &Migrator) -> Vec<Stage> {
    let mut stages: Vec<Stage> = Vec::new();
    for migration in migrator.iter() {
        let stage = Stage {
            version: migration.version,
            is_in_transaction: !migration.no_tx,
        };
        match stages.last_mut() {
            Some(last) if last.is_in_transaction == stage.is_in_transaction => *last = stage,
            _ => stages.push(stage),
        }
    }
    stages
}

async fn run_stage(
    connection: &mut PgConnection,
    migrator: &Migrator,
    version: i64,
) -> Result<(), LedgerError> {
    let mut attempt = 1;
    loop {
        let run = migrator.run_direct(Some(version), connection, false).await;
        match run.map_err(LedgerError::migration) {
            Err(LedgerError::TimedOut {
                limit: TimeLimit::Lock,
                ..
            }) if attempt < ATTEMPTS_MAX => {
                tracing::info!(attempt, "a migration waits for a table, retrying");
                tokio::time::sleep(RETRY_PAUSE).await;
                attempt += 1;
            }
            run => return run,
        }
    }
}

/// Drops the indexes that a missing migration up to this one has begun to build beside a sale.
/// PostgreSQL keeps a half built index up to date with every order, and reads nothing from it.
async fn drop_half_built(
    connection: &mut PgConnection,
    migrator: &Migrator,
    version: i64,
) -> Result<(), LedgerError> {
    let applied = connection.list_applied_migrations(&migrator.table_name);
    let applied = applied.await.map_err(LedgerError::migration)?;
    let applied: Vec<_> = applied.iter().map(|migration| migration.version).collect();
    let missing = migrations::missing(migrator, &applied);
    let built = migrator
        .iter()
        .filter(|migration| migration.version <= version && missing.contains(&migration.version))
        .filter_map(|migration| built_beside_a_sale(migration.sql.as_str()));
    for index in built {
        if is_half_built(connection, index).await? {
            tracing::info!(index, "an index is half built, and is built again");
            let drop = AssertSqlSafe(format!("DROP INDEX CONCURRENTLY {index}"));
            sqlx::raw_sql(drop).execute(&mut *connection).await?;
        }
    }
    Ok(())
}

async fn is_half_built(connection: &mut PgConnection, index: &str) -> Result<bool, LedgerError> {
    let is_valid = sqlx::query_scalar::<_, bool>(
        "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)",
    );
    let is_valid = is_valid.bind(index).fetch_optional(connection).await?;
    Ok(is_valid == Some(false))
}

/// The index that this migration builds beside a sale.
fn built_beside_a_sale(sql: &str) -> Option<&str> {
    let (_, built) = sql.split_once("CREATE INDEX CONCURRENTLY IF NOT EXISTS ")?;
    built.split_whitespace().next()
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection, PgConnection, migrate::Migrate};
    use testkit::eventually;

    use super::{built_beside_a_sale, stages};
    use crate::{Ledger, Listing, PoolSettings, migrations, postgres::PostgresLedger};

    #[test]
    fn the_last_stage_ends_with_the_last_migration() {
        let migrator = migrations::postgres();
        let stages = stages(&migrator);
        let last = migrator.iter().map(|one| one.version).max();
        assert_eq!(stages.last().map(|stage| stage.version), last);
        let kinds: Vec<_> = stages.iter().map(|stage| stage.is_in_transaction).collect();
        assert!(kinds.windows(2).all(|pair| pair[0] != pair[1]), "{kinds:?}");
    }

    /// Or an interrupted one would not be built again.
    #[test]
    fn a_migration_outside_of_a_transaction_names_the_index_that_it_builds() {
        let migrator = migrations::postgres();
        let mut indexes = Vec::new();
        for migration in migrator.iter() {
            let index = built_beside_a_sale(migration.sql.as_str());
            assert_eq!(index.is_some(), migration.no_tx, "{}", migration.version);
            indexes.extend(index);
        }
        assert!(indexes.contains(&"orders_of_buyer"), "{indexes:?}");
    }

    /// A ledger that lacks the index of buyers' orders, with two orders, and another connection to
    /// it.
    async fn without_index() -> (String, PostgresLedger, PgConnection) {
        let url = testkit::postgres_database().await;
        let ledger = PostgresLedger::connect(&url, PoolSettings::patient(1));
        let ledger = ledger.await.unwrap();
        ledger.migrate().await.unwrap();
        let mut other = PgConnection::connect(&url).await.unwrap();
        for sql in [
            "DELETE FROM _sqlx_migrations WHERE version = 20261127000300",
            "DROP INDEX orders_of_buyer",
        ] {
            sqlx::raw_sql(sql).execute(&mut other).await.unwrap();
        }
        for id in 1..3 {
            insert(&mut other, id).await;
        }
        (url, ledger, other)
    }

    async fn insert(connection: &mut PgConnection, id: i32) {
        let insert = sqlx::query(
            "INSERT INTO orders (id, item, segment, buyer, quantity, state, expires_at) \
             VALUES (lpad($1::text, 32, '0')::uuid, 'vase', 0, 'ann', 1, 'held', now())",
        );
        insert.bind(id).execute(connection).await.unwrap();
    }

    /// The index's definition, whether it is valid, and its number, which a new index does not
    /// share.
    async fn index(connection: &mut PgConnection) -> (String, bool, i64) {
        let index = sqlx::query_as(
            "SELECT pg_get_indexdef(indexrelid), indisvalid, indexrelid::bigint FROM pg_index \
             WHERE indexrelid = to_regclass('orders_of_buyer')",
        );
        index.fetch_one(connection).await.unwrap()
    }

    const DEFINITION: &str =
        "CREATE INDEX orders_of_buyer ON public.orders USING btree (buyer text_pattern_ops, id)";

    #[tokio::test(flavor = "multi_thread")]
    async fn an_index_that_was_half_built_is_built_again() {
        let (_, ledger, mut other) = without_index().await;
        // It ends in the middle: both orders are Ann's.
        let half = "CREATE UNIQUE INDEX CONCURRENTLY orders_of_buyer ON orders (buyer)";
        sqlx::raw_sql(half).execute(&mut other).await.unwrap_err();
        let (_, is_valid, half) = index(&mut other).await;
        assert!(!is_valid);
        ledger.migrate().await.unwrap();
        let (definition, is_valid, whole) = index(&mut other).await;
        assert_eq!((&*definition, is_valid), (DEFINITION, true));
        assert_ne!(half, whole);
        assert!(ledger.missing_migrations().await.unwrap().is_empty());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_index_that_was_built_before_the_upgrade_stays() {
        let (_, ledger, mut other) = without_index().await;
        let build = include_str!(
            "../../../../migrations/postgres/20261127000300_index_orders_of_buyer.sql"
        );
        sqlx::raw_sql(build).execute(&mut other).await.unwrap();
        let built = index(&mut other).await;
        assert_eq!((&*built.0, built.1), (DEFINITION, true));
        ledger.migrate().await.unwrap();
        assert_eq!(index(&mut other).await, built);
        assert!(ledger.missing_migrations().await.unwrap().is_empty());
    }

    /// The index waits for a transaction that was open before it. Meanwhile orders are recorded,
    /// and a process that waits for its turn, of this release or an earlier one, does not end the
    /// migration.
    #[tokio::test(flavor = "multi_thread")]
    async fn an_index_is_built_while_orders_are_recorded_and_processes_start() {
        let (url, ledger, mut other) = without_index().await;
        let second = PostgresLedger::connect(&url, PoolSettings::patient(1));
        let second = second.await.unwrap();
        let mut open = other.begin().await.unwrap();
        insert(&mut open, 3).await;
        let migrated = async { tokio::join!(ledger.migrate(), second.migrate()) };
        let sold = async {
            let mut buyers = PgConnection::connect(&url).await.unwrap();
            eventually("the index is being built", async || {
                let waits = sqlx::query_scalar::<_, bool>(
                    "SELECT EXISTS (SELECT FROM pg_stat_progress_create_index WHERE phase LIKE 'waiting%' \
                     AND datname = current_database())",
                );
                waits.fetch_one(&mut buyers).await.unwrap()
            })
            .await;
            insert(&mut buyers, 4).await;
            buyers.lock().await.unwrap();
            buyers.unlock().await.unwrap();
            open.commit().await.unwrap();
        };
        let ((first, second), ()) = tokio::join!(migrated, sold);
        first.unwrap();
        second.unwrap();
        let (definition, is_valid, _) = index(&mut other).await;
        assert_eq!((&*definition, is_valid), (DEFINITION, true));
        let listed = ledger
            .list_buyer_orders(&"ann".parse().unwrap(), None, 9)
            .await;
        assert_eq!(listed.unwrap().rows.len(), 4, "each order is in the index");
    }
}

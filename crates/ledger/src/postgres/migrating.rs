//! Migrations, on PostgreSQL.
//!
//! They have a connection of their own. One of several processes migrates, and the others wait for it as
//! long as it takes. A statement that builds an index takes long as well. A statement that waits for a table
//! makes all later ones wait behind it, so it gives up soon, and is tried again after a pause.

use std::time::Duration;

use sqlx::{
    ConnectOptions, Connection, PgConnection,
    migrate::{Migrate, Migrator},
    postgres::PgConnectOptions,
};

use tokio::time::timeout;

use super::session::{self, Limits, Plans};
use crate::{LedgerError, StatementLimits, TimeLimit, migrations};

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
    connection.lock().await.map_err(LedgerError::migration)?;
    let migrated = run_locked(&mut connection, limits).await;
    // The end of the connection unlocks as well, for one that was lost.
    let _ = connection.unlock().await;
    let _ = connection.close().await;
    migrated
}

async fn run_locked(
    connection: &mut PgConnection,
    limits: StatementLimits,
) -> Result<(), LedgerError> {
    let mut migrator = migrations::postgres();
    migrator.set_locking(false);
    for target in stages(&migrator) {
        let lock = target.is_in_transaction.then_some(limits.lock);
        let limits = Limits { lock, ..UNLIMITED };
        session::limit(connection, limits).await?;
        run_stage(connection, &migrator, target.version).await?;
    }
    Ok(())
}

/// Migrations up to this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stage {
    version: i64,
    is_in_transaction: bool,
}

/// Consecutive migrations of a kind: those outside of a transaction build an index beside a sale. They wait
/// for all older transactions, and would leave half an index if they gave up.
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

#[cfg(test)]
mod tests {
    use super::stages;
    use crate::migrations;

    #[test]
    fn the_last_stage_ends_with_the_last_migration() {
        let migrator = migrations::postgres();
        let stages = stages(&migrator);
        let last = migrator.iter().map(|one| one.version).max();
        assert_eq!(stages.last().map(|stage| stage.version), last);
        let kinds: Vec<_> = stages.iter().map(|stage| stage.is_in_transaction).collect();
        assert!(kinds.windows(2).all(|pair| pair[0] != pair[1]), "{kinds:?}");
    }
}

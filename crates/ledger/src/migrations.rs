//! The schema's migrations, which the build script embeds.

use std::borrow::Cow;

use sqlx::{
    SqlSafeStr as _,
    migrate::{Migration, MigrationType, Migrator},
};

/// Version, description and SQL of a migration file.
type File = (i64, &'static str, &'static str);

// Defines POSTGRES and SQLITE, each sorted by version.
include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

/// The migrations of `migrations/postgres`.
pub(crate) fn postgres() -> Migrator {
    migrator(POSTGRES)
}

/// The migrations of `migrations/sqlite`.
pub(crate) fn sqlite() -> Migrator {
    migrator(SQLITE)
}

/// Versions of `migrator` that are not among the applied ones.
pub(crate) fn missing(migrator: &Migrator, applied: &[i64]) -> Vec<i64> {
    let versions = migrator.iter().map(|migration| migration.version);
    versions
        .filter(|version| !applied.contains(version))
        .collect()
}

fn migrator(files: &[File]) -> Migrator {
    let migration = |&(version, description, sql): &File| {
        Migration::new(
            version,
            Cow::Borrowed(description),
            MigrationType::Simple,
            sql.into_sql_str(),
            sql.starts_with("-- no-transaction"),
        )
    };
    Migrator::with_migrations(files.iter().map(migration).collect())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sqlx::migrate::Migrator;

    #[tokio::test]
    async fn the_embedded_migrations_are_those_that_sqlx_reads_from_the_folder() {
        for (folder, embedded) in [("postgres", super::postgres()), ("sqlite", super::sqlite())] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../migrations")
                .join(folder);
            let read = Migrator::new(folder).await.unwrap();
            let all = |migrator: &Migrator| {
                migrator
                    .iter()
                    .map(|one| {
                        let checksum = one.checksum.to_vec();
                        let description = one.description.clone();
                        (
                            one.version,
                            description,
                            one.migration_type,
                            checksum,
                            one.no_tx,
                        )
                    })
                    .collect::<Vec<_>>()
            };
            assert!(!all(&read).is_empty());
            assert_eq!(all(&embedded), all(&read));
        }
    }
}

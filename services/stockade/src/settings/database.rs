//! The ledger's database, and whether the connection to it is as safe as its operator thinks.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use ledger::{PoolSettings, StatementLimits};
use reqwest::Url;

use super::{
    Layers, Settings,
    declaration::settings,
    kinds::{ms, number, read_by, switch},
};

settings! {
    /// The ledger's database.
    Database {
        /// the ledger: `postgres://USER@HOST/DATABASE` or `sqlite://PATH`
        database_url: Option<String>, read_by(database_url);
        /// pool size. On PostgreSQL a recorder in the same process as an order service opens its own
        /// connections: one more than `STOCKADE_RECORDER_WORKERS`. Lookups of orders and carts and
        /// readers of events open up to half as many more, lists and drops two, and full audits four
        database_connections: u32 = 8, number(1..=1000);
        /// milliseconds that a statement of PostgreSQL may take (`statement_timeout`): a step of an
        /// order, a recorded batch, a look-up. Migrations have no such limit, and neither have
        /// [sessions of locks](operations.md#postgresql-that-moves)
        database_statement_timeout_ms: Duration = 30000, ms(100..=3_600_000);
        /// the same for lists, exports, drops and each piece of a full audit
        database_long_statement_timeout_ms: Duration = 600000, ms(100..=86_400_000);
        /// milliseconds that a statement waits for a row or a table of PostgreSQL (`lock_timeout`),
        /// or for the write of another process to the file of SQLite. A migration that waits longer
        /// for a table is tried again, ten times
        database_lock_timeout_ms: Duration = 5000, ms(10..=3_600_000);
        /// `on` or `off`: whether `serve` updates the ledger's schema, as
        /// [`stockade migrate`](operations.md#upgrade) does. With `off` it refuses an older one
        migrate: bool = "off", switch();
    }
}

impl Database {
    /// How many connections to the ledger may be open, and how long a statement may take.
    pub fn pool(&self, connections: u32) -> PoolSettings {
        PoolSettings {
            limits: StatementLimits {
                statement: self.database_statement_timeout_ms,
                long_statement: self.database_long_statement_timeout_ms,
                lock: self.database_lock_timeout_ms,
            },
            ..PoolSettings::new(connections)
        }
    }
}

impl Settings {
    /// URL of the ledger's database.
    pub fn database_url(&self) -> Result<&str> {
        self.database.database_url.as_deref().context(
            "DATABASE_URL is not set: expected postgres://USER@HOST/DATABASE or sqlite://PATH",
        )
    }
}

/// A ledger in memory would be another one for each connection.
fn database_url(layers: &Layers, key: &str) -> Result<Option<String>> {
    let Some(url) = layers.url(key, &["postgres", "postgresql", "sqlite"])? else {
        return Ok(None);
    };
    let is_file = url.starts_with("sqlite://") && !url.contains(":memory:");
    if url.starts_with("sqlite:") && !is_file {
        return Err(layers.wrong(key, "a file, as in sqlite://PATH: each connection to a ledger in memory would open another ledger"));
    }
    check_encryption(&url, layers)?;
    Ok(Some(url))
}

/// Without `sslmode`, PostgreSQL's clients prefer encryption, and do without it if anyone between
/// refuses it. So a server on another machine needs the word of the operator.
fn check_encryption(database_url: &str, layers: &Layers) -> Result<()> {
    if database_url.starts_with("sqlite:") || !leaves_the_machine(database_url) {
        return Ok(());
    }
    if says_sslmode(database_url) || std::env::var_os("PGSSLMODE").is_some() {
        return Ok(());
    }
    bail!(
        "{}: expected sslmode for a server on another machine: ?sslmode=verify-full&sslrootcert=CA.pem, or sslmode=disable on a private network",
        layers.place("database_url")
    )
}

fn leaves_the_machine(url: &str) -> bool {
    let Ok(url) = Url::parse(url) else {
        return false;
    };
    let socket = url
        .query_pairs()
        .any(|(key, value)| key == "host" && value.starts_with('/'));
    match url.host_str() {
        _ if socket => false,
        None | Some("" | "localhost" | "127.0.0.1" | "[::1]") => false,
        // The percent-encoded path of a socket.
        Some(host) => !host.to_ascii_lowercase().starts_with("%2f"),
    }
}

fn says_sslmode(url: &str) -> bool {
    let url = Url::parse(url);
    url.is_ok_and(|url| {
        url.query_pairs()
            .any(|(key, _)| key == "sslmode" || key == "ssl-mode")
    })
}

#[cfg(test)]
mod tests {
    use super::{leaves_the_machine, says_sslmode};

    #[test]
    fn only_a_server_on_another_machine_needs_the_word_of_the_operator() {
        for (url, leaves, says) in [
            ("postgres://127.0.0.1/shop", false, false),
            ("postgres://u:p@localhost:5433/shop", false, false),
            ("postgres://[::1]/shop", false, false),
            ("postgres:///shop", false, false),
            ("postgres:///shop?host=/run/postgresql", false, false),
            ("postgres://%2Frun%2Fpostgresql/shop", false, false),
            ("postgres://db.internal/shop", true, false),
            (
                "postgresql://u:p@10.0.0.5/shop?sslmode=verify-full",
                true,
                true,
            ),
            (
                "postgres://db/shop?application_name=x&sslmode=disable",
                true,
                true,
            ),
        ] {
            assert_eq!(
                (leaves_the_machine(url), says_sslmode(url)),
                (leaves, says),
                "{url}"
            );
        }
    }
}

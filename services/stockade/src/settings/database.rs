//! Whether the connection to the ledger's database is as safe as its operator thinks.

use anyhow::{Result, bail};
use reqwest::Url;

use super::Layers;

/// Without `sslmode`, PostgreSQL's clients prefer encryption, and do without it if anyone between
/// refuses it. So a server on another machine needs the word of the operator.
pub(super) fn check_encryption(database_url: &str, layers: &Layers) -> Result<()> {
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

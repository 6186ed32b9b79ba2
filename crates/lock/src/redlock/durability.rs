//! Whether a node keeps its votes when it restarts.
//!
//! The operator declares it (`durable=true` in the node's URL), because only the operator can: a
//! folder restored from a backup and a replica that was promoted look like the server that they
//! replace. What a server can be asked is asked at every look: a vote is on disk before it is
//! answered only if the append-only file is on and is flushed at every write, also while it is
//! rewritten.

use std::{collections::HashMap, fmt};

use redis::InfoDict;

use crate::redis_server::Server;

/// Settings of a server that has every vote on disk before it answers.
const EXPECTED: [(&str, &str); 3] = [
    ("appendonly", "yes"),
    ("appendfsync", "always"),
    // With `yes`, a server that rewrites its file flushes nothing meanwhile.
    ("no-appendfsync-on-rewrite", "no"),
];

/// Whether a node keeps its votes when it restarts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// The URL does not say `durable=true`. The node waits after a restart.
    NotDeclared,
    /// The URL says so, and the node's settings agree. It votes at once after a restart, if it has
    /// been seen so before.
    Confirmed,
    /// The URL says so, and the node's settings do not agree or could not be read. It waits after a
    /// restart.
    Refuted {
        /// Which setting, and how it should be.
        reason: String,
    },
}

impl Durability {
    /// Asks the server for its settings, if the operator has declared it durable.
    pub(super) async fn ask(server: &Server) -> Self {
        if !server.is_declared_durable {
            return Self::NotDeclared;
        }
        let mut pipeline = redis::pipe();
        pipeline.cmd("CONFIG").arg("GET");
        for (setting, _) in EXPECTED {
            pipeline.arg(setting);
        }
        match server.query::<(HashMap<String, String>,)>(&pipeline).await {
            Ok((settings,)) => Self::judge(&settings),
            Err(answer) => Self::refuted(format!("CONFIG GET failed: {answer}")),
        }
    }

    /// Takes into account what the server says of itself.
    pub(super) fn with_info(self, info: &InfoDict) -> Self {
        let earlier_master: Option<String> = info.get("master_replid2");
        let was_replica = earlier_master.is_some_and(|id| id.bytes().any(|byte| byte != b'0'));
        match self {
            Self::Confirmed if was_replica => {
                Self::refuted("the server was a replica, which may lack the last votes".into())
            }
            durability => durability,
        }
    }

    fn judge(settings: &HashMap<String, String>) -> Self {
        let found = |setting| settings.get(setting).map_or("unknown", String::as_str);
        let wrong = EXPECTED
            .iter()
            .find(|(setting, expected)| found(*setting) != *expected);
        match wrong {
            None => Self::Confirmed,
            Some((setting, expected)) => Self::refuted(format!(
                "{setting} is {}, expected {expected}",
                found(*setting)
            )),
        }
    }

    fn refuted(reason: String) -> Self {
        Self::Refuted { reason }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotDeclared => f.write_str("not declared durable"),
            Self::Confirmed => f.write_str("durable"),
            Self::Refuted { reason } => write!(f, "declared durable, but {reason}"),
        }
    }
}

/// What a node has written about its admission: `RUN_ID:FLOOR` or `RUN_ID:FLOOR:durable`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Generation<'a> {
    pub run_id: &'a str,
    pub floor: &'a str,
    /// A client has seen, in that run, that votes are on disk before they are answered. Everything
    /// written before this is on the same disk, because the file is written in order.
    pub is_durable: bool,
}

impl<'a> Generation<'a> {
    pub(super) fn parse(text: &'a str) -> Self {
        let mut parts = text.splitn(3, ':');
        let mut part = || parts.next().unwrap_or_default();
        Self {
            run_id: part(),
            floor: part(),
            is_durable: part() == "durable",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::{Durability, Generation};

    #[test]
    fn a_server_is_durable_only_with_all_three_settings() {
        let judged = |appendonly: &str, appendfsync: &str, on_rewrite: &str| {
            let settings = [
                ("appendonly", appendonly),
                ("appendfsync", appendfsync),
                ("no-appendfsync-on-rewrite", on_rewrite),
            ];
            let settings: HashMap<_, _> = settings
                .map(|(setting, value)| (setting.to_owned(), value.to_owned()))
                .into();
            Durability::judge(&settings).to_string()
        };
        assert_eq!(judged("yes", "always", "no"), "durable");
        for (settings, reason) in [
            (("no", "always", "no"), "appendonly is no, expected yes"),
            (
                ("yes", "everysec", "no"),
                "appendfsync is everysec, expected always",
            ),
            (
                ("yes", "always", "yes"),
                "no-appendfsync-on-rewrite is yes, expected no",
            ),
        ] {
            let (appendonly, appendfsync, on_rewrite) = settings;
            assert!(
                judged(appendonly, appendfsync, on_rewrite).ends_with(reason),
                "{settings:?}"
            );
        }
        assert_ne!(Durability::judge(&HashMap::new()), Durability::Confirmed);
    }

    #[test]
    fn a_generation_has_a_run_a_floor_and_says_whether_it_is_durable() {
        let generation = |run_id, floor, is_durable| Generation {
            run_id,
            floor,
            is_durable,
        };
        assert_eq!(Generation::parse("ab:7"), generation("ab", "7", false));
        assert_eq!(
            Generation::parse("ab:7:durable"),
            generation("ab", "7", true)
        );
        assert_eq!(Generation::parse(""), Generation::default());
    }
}

//! The safety checks that a test can disable, one at a time, to show why each is needed.
//!
//! Without the feature `ablation`, which only `lab/ablation` enables, every check is enabled at
//! compile time. With the feature, the environment variable `STOCKADE_WITHOUT` names the check that
//! is disabled in this process. `docs/safety.md` lists each check, the test that fails without it,
//! and the failure that follows.

/// A safety check that an ablation test can disable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SafetyCheck {
    /// A segment repeats the decision that it has recorded for an order.
    RecordedDecision,
    /// A change that was decided on one version of a row is written only to that version.
    VersionCheck,
    /// Only the holder of the highest fencing token changes what the lock protects.
    FenceClaim,
    /// An outbox is recorded only if it continues the history that was recorded last.
    AnchorCheck,
    /// The home segment checks the buyer's limit in the script that takes the units.
    LimitAtHome,
    /// The recorder checks the buyer's limit again where the count at home may not cover it.
    LimitInLedger,
    /// A payment pays only the order that it was reported for first.
    PaymentOnce,
    /// A payment whose money was returned pays nothing.
    PaymentSpent,
    /// An order is told that it is sold out only after two snapshots of all segments agree.
    SoldOutProof,
    /// After a failover, home's decisions are compared with the orders that other segments have.
    HomeCheck,
    /// Until that has ended, no stranger is refused on home's word alone.
    CheckedHome,
    /// A hold ends by the earlier of two clocks, and not at all while they differ by seconds.
    ClockCheck,
    /// An archived segment leaves a tombstone, which no script opens again.
    Tombstone,
    /// An item is archived only if nothing has changed since its final audit.
    AuditCompare,
    /// A row is dropped only as its verified export has it.
    DropCompare,
    /// A reconciler finishes the spillovers that their processes have abandoned.
    Settlement,
    /// A listener has a bound of connections, at which a silent one makes room.
    ConnectionBound,
}

impl SafetyCheck {
    /// Every check.
    pub const ALL: [Self; 17] = [
        Self::RecordedDecision,
        Self::VersionCheck,
        Self::FenceClaim,
        Self::AnchorCheck,
        Self::LimitAtHome,
        Self::LimitInLedger,
        Self::PaymentOnce,
        Self::PaymentSpent,
        Self::SoldOutProof,
        Self::HomeCheck,
        Self::CheckedHome,
        Self::ClockCheck,
        Self::Tombstone,
        Self::AuditCompare,
        Self::DropCompare,
        Self::Settlement,
        Self::ConnectionBound,
    ];

    /// The variable that names the check to disable.
    pub const WITHOUT: &str = "STOCKADE_WITHOUT";

    /// The name in `STOCKADE_WITHOUT` and in the documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RecordedDecision => "recorded_decision",
            Self::VersionCheck => "version_check",
            Self::FenceClaim => "fence_claim",
            Self::AnchorCheck => "anchor_check",
            Self::LimitAtHome => "limit_at_home",
            Self::LimitInLedger => "limit_in_ledger",
            Self::PaymentOnce => "payment_once",
            Self::PaymentSpent => "payment_spent",
            Self::SoldOutProof => "sold_out_proof",
            Self::HomeCheck => "home_check",
            Self::CheckedHome => "checked_home",
            Self::ClockCheck => "clock_check",
            Self::Tombstone => "tombstone",
            Self::AuditCompare => "audit_compare",
            Self::DropCompare => "drop_compare",
            Self::Settlement => "settlement",
            Self::ConnectionBound => "connection_bound",
        }
    }

    /// Whether the check is enabled: always, except in an ablation test.
    #[cfg(not(feature = "ablation"))]
    pub const fn is_enabled(self) -> bool {
        true
    }

    /// Whether the check is enabled in this process.
    #[cfg(feature = "ablation")]
    pub fn is_enabled(self) -> bool {
        static DISABLED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
        let disabled = DISABLED.get_or_init(|| std::env::var(Self::WITHOUT).ok());
        disabled.as_deref() != Some(self.as_str())
    }
}

/// Replaces the source of a script, by its name, in an ablation test.
#[cfg(feature = "ablation")]
pub type ScriptPatch = fn(name: &str, source: &'static str) -> &'static str;

#[cfg(feature = "ablation")]
static SCRIPT_PATCH: std::sync::OnceLock<ScriptPatch> = std::sync::OnceLock::new();

/// Registers `patch` for every script of this process ([`script_source`]). The first call wins.
#[cfg(feature = "ablation")]
pub fn patch_scripts(patch: ScriptPatch) {
    let _ = SCRIPT_PATCH.set(patch);
}

/// The source of a script: unchanged, except in an ablation test.
#[cfg(not(feature = "ablation"))]
pub const fn script_source(_name: &str, source: &'static str) -> &'static str {
    source
}

/// The source of a script, as the ablation test of this process has patched it.
#[cfg(feature = "ablation")]
pub fn script_source(name: &str, source: &'static str) -> &'static str {
    SCRIPT_PATCH
        .get()
        .map_or(source, |patch| patch(name, source))
}

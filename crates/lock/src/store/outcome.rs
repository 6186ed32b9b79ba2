//! The outcomes of the calls, in order of precedence.

use crate::token::FencingToken;

/// Outcome of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "only a claimed row may be written"]
pub enum Claim {
    /// The row is ours until another client claims it. Read it now, not earlier.
    Claimed {
        /// Version for the next write. The claim has raised it, so no other client has this one.
        version: i64,
    },
    /// There is no such row. Nothing was changed.
    Missing,
    /// A later holder has claimed the row, and this holder must stop. Nothing was changed.
    Superseded {
        /// The token of the later holder.
        current: FencingToken,
    },
}

/// Outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a write that was not applied has changed nothing"]
pub enum Write {
    /// The row was written.
    Applied {
        /// Version for the next write.
        version: i64,
    },
    /// There is no such row. Nothing was changed.
    Missing,
    /// A later holder has claimed the row, and this holder must stop. Nothing was changed.
    Superseded {
        /// The token of the later holder.
        current: FencingToken,
    },
    /// The row was not claimed with this token, or its fence was lowered since. Nothing was
    /// changed; claim first.
    Unclaimed,
    /// The row was claimed again by this token, or was written to, since this version. Nothing was
    /// changed; claim, read and decide again.
    Conflict {
        /// The row's version now.
        version: i64,
    },
}

/// How a token compares to the fence of the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// The token made the last claim of the row.
    Current,
    /// There is no such row.
    Missing,
    /// A later holder has claimed the row.
    Superseded {
        /// The token of the later holder.
        current: FencingToken,
    },
    /// The token is above the fence and has not claimed the row yet.
    Unclaimed,
}

/// Fence and version of a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowState {
    pub fence: i64,
    pub version: i64,
}

impl RowState {
    /// The fence, if it is above `token`.
    pub(crate) fn above(self, token: FencingToken) -> Option<FencingToken> {
        FencingToken::new(self.fence).filter(|current| *current > token)
    }

    pub(crate) fn is_below(self, token: FencingToken) -> bool {
        self.fence < token.get()
    }
}

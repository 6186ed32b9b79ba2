//! What the row said, in order of precedence.

use crate::FencingToken;

/// What became of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "only a claimed row may be written"]
pub enum Claim {
    /// The row is ours until somebody else claims it. Read it now, not earlier.
    Claimed {
        /// For the next write. The claim itself has raised it, so nobody else has this one.
        version: i64,
    },
    /// There is no such row. Nothing was changed.
    Missing,
    /// A later holder has claimed the row: whatever is still to be done is not ours to do. Nothing was changed.
    Superseded {
        /// The token of the later holder.
        current: FencingToken,
    },
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a write that was not applied has changed nothing"]
pub enum Write {
    /// It is in the row.
    Applied {
        /// For the next write.
        version: i64,
    },
    /// There is no such row. Nothing was changed.
    Missing,
    /// A later holder has claimed the row: whatever is still to be done is not ours to do. Nothing was changed.
    Superseded {
        /// The token of the later holder.
        current: FencingToken,
    },
    /// The row was not claimed with this token, or has forgotten it. Nothing was changed; claim first.
    Unclaimed,
    /// The row was claimed again by this token, or was written to, since this version. Nothing was changed; claim, read and decide again.
    Conflict {
        /// The row's version now.
        version: i64,
    },
}

/// Where a token stands at the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// It is the token that has claimed the row last.
    Current,
    /// There is no such row.
    Missing,
    /// A later holder has claimed the row.
    Superseded {
        /// The token of the later holder.
        current: FencingToken,
    },
    /// It is later than whatever has claimed the row, which does not know it yet.
    Unclaimed,
}

/// What a row says about its holders.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    pub fence: i64,
    pub version: i64,
}

impl Standing {
    /// The later holder, if there is one. A fence above a token is a token.
    pub(crate) fn above(self, token: FencingToken) -> Option<FencingToken> {
        FencingToken::new(self.fence).filter(|current| *current > token)
    }

    pub(crate) fn is_below(self, token: FencingToken) -> bool {
        self.fence < token.get()
    }
}

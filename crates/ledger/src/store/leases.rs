//! What a publisher does with its leases of webhooks and sinks, one at a time.

use super::{Query, Store, lend};
use crate::{EventCursor, LedgerError, convert::signed};

/// Moves the position of what is leased. `advance` has the values that name it and its publisher.
/// Returns whether the publisher still has it, at this position or before it.
pub(super) async fn advance(
    store: &Store,
    advance: Query<'_>,
    to: EventCursor,
) -> Result<bool, LedgerError> {
    let advance = advance.bind(signed(to.seq)).bind(to.xid.to_string());
    change(store, advance).await
}

/// Returns whether there was one to change.
pub(super) async fn change(store: &Store, change: Query<'_>) -> Result<bool, LedgerError> {
    let changed = change.execute(&mut *lend(store).await?).await?;
    Ok(changed.rows_affected() == 1)
}

/// Ends leases, of which there may be none.
pub(super) async fn release(store: &Store, release: Query<'_>) -> Result<(), LedgerError> {
    release.execute(&mut *lend(store).await?).await?;
    Ok(())
}

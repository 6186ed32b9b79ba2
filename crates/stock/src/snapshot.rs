//! A snapshot of a segment with its outbox, however long that is: the reply to one call is bounded.
//!
//! The state and the first entries come from one moment. Entries are only appended at the end and
//! trimmed at the front, so those up to the `last` one of that moment can be read later, page by
//! page. Each page begins with the entry that the one before ended with. If that is gone, the
//! recorder has trimmed the outbox further than was read, and the snapshot is taken again.

use domain::{Entry, EntryId};

use crate::{
    StockError,
    connection::Carrier,
    keys::Keys,
    outbox::decode_entries,
    reply::ReplyReader,
    script::{self, Inspection, InspectionEntries},
};

/// Entries in one reply. Each holds a batch of orders.
const PAGE_ENTRIES: usize = 256;

/// Snapshots until the outbox counts as changing too fast. The recorder would have to record faster
/// than Redis can be read.
const ATTEMPTS_MAX: usize = 10;

/// Takes a snapshot of the segment.
pub(crate) async fn take(
    carrier: &impl Carrier,
    keys: &Keys,
    entries: InspectionEntries,
) -> Result<Inspection, StockError> {
    for _ in 0..ATTEMPTS_MAX {
        if let Some(inspection) = take_once(carrier, keys, entries).await? {
            return Ok(inspection);
        }
    }
    Err(StockError::Moved(keys.segment.clone()))
}

/// The same with the first entries only.
pub(crate) async fn take_page(
    carrier: &impl Carrier,
    keys: &Keys,
    entries: InspectionEntries,
) -> Result<Inspection, StockError> {
    script::inspect(carrier, keys, entries, PAGE_ENTRIES).await
}

/// `None`: the outbox was trimmed meanwhile.
async fn take_once(
    carrier: &impl Carrier,
    keys: &Keys,
    entries: InspectionEntries,
) -> Result<Option<Inspection>, StockError> {
    let mut inspection = script::inspect(carrier, keys, entries, PAGE_ENTRIES).await?;
    while let Some(cursor) = inspection.entries.last().map(|entry| entry.id)
        && cursor < inspection.last
    {
        let mut page = page_from(carrier, keys, cursor).await?.into_iter();
        if page.next().is_none_or(|first| first.id != cursor) {
            return Ok(None);
        }
        let read = inspection.entries.len();
        let last = inspection.last;
        inspection
            .entries
            .extend(page.take_while(|entry| entry.id <= last));
        // The counter names an entry that the outbox has lost.
        if inspection.entries.len() == read {
            break;
        }
    }
    Ok(Some(inspection))
}

async fn page_from(
    carrier: &impl Carrier,
    keys: &Keys,
    from: EntryId,
) -> Result<Vec<Entry>, StockError> {
    let mut cmd = redis::cmd("XRANGE");
    cmd.arg(&keys.outbox)
        .arg(from.to_string())
        .arg("+")
        .arg("COUNT")
        .arg(PAGE_ENTRIES + 1);
    decode_entries(ReplyReader::new(carrier.carry(cmd, keys).await?)?)
}

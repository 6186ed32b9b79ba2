//! Every key and channel name. No other module builds one.

use domain::SegmentKey;

/// A segment's script publishes here when its outbox was drained and has an entry again. The
/// payload is `ITEM:SEGMENT`. The scripts have this name too; `tests/it/headers.rs` compares them.
pub(crate) const OUTBOX_CHANNEL: &str = "stockade:outbox";

/// The recorder publishes here: `ITEM:SEGMENT ID:FINGERPRINT,... [REJECTED ORDER]...`.
pub(crate) const RECORDED_CHANNEL: &str = "stockade:recorded";

/// A segment's script publishes here when units have come back to it. The payload is `ITEM:SEGMENT
/// AVAILABLE`. The scripts have this name too.
pub(crate) const RETURNED_CHANNEL: &str = "stockade:returned";

/// In `buyers`, prefixes the id of a buyer who has released something. No buyer id can begin with
/// it. The scripts have it too.
///
/// A buyer's count ends when the buyer holds nothing any more, but the decision on a released order
/// is permanent. The sold-out cache must not refuse such a buyer, who may be repeating that order.
pub(crate) const RELEASED_MARK: char = '\n';

/// An order that no segment alone has enough units for publishes here. The payload is `ITEM UNITS`.
/// A reconciler consolidates the units in one segment.
pub(crate) const CONSOLIDATE_CHANNEL: &str = "stockade:consolidate";

/// The keys of one segment. They share a hash tag, so a cluster keeps them in one slot and one
/// script may use them all.
#[derive(Debug)]
pub(crate) struct Keys {
    /// The segment.
    pub segment: SegmentKey,
    /// The segment's name, as the scripts publish it.
    pub name: String,
    /// Fields: available, limit, state, opens_ms, closes_ms, epoch, fence, hold_ms, last, segments,
    /// gained, leaving, left, checked, repairing, restored, price.
    /// hash: the state of the segment
    pub stock: String,
    /// hash: order id -> decision, and transfer id -> units that it moved
    pub decisions: String,
    /// hash: buyer id -> units counted against the limit, and [`RELEASED_MARK`] with a buyer id ->
    /// 1
    pub buyers: String,
    /// stream: every change
    pub outbox: String,
    /// zset: pending spillovers by the time they fall due
    pub spillovers: String,
    /// string: `1`, written so that replicas confirm it (`connection/replicated.rs`)
    pub replicated: String,
}

impl Keys {
    pub(crate) fn of(segment: &SegmentKey) -> Self {
        let name = segment.to_string();
        let key = |kind: &str| format!("{kind}:{{{name}}}");
        Self {
            segment: segment.clone(),
            stock: key("stock"),
            decisions: key("decisions"),
            buyers: key("buyers"),
            outbox: key("outbox"),
            spillovers: key("spillovers"),
            replicated: key("replicated"),
            name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Keys;

    #[test]
    fn the_keys_of_a_segment_share_one_hash_tag() {
        let keys = Keys::of(&"maotai:7".parse().unwrap());
        assert_eq!(keys.stock, "stock:{maotai:7}");
        for key in [
            &keys.stock,
            &keys.decisions,
            &keys.buyers,
            &keys.outbox,
            &keys.spillovers,
            &keys.replicated,
        ] {
            assert!(key.ends_with(":{maotai:7}"), "{key}");
        }
    }
}

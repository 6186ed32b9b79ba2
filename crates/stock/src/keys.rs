//! Every key and channel name. Nothing else builds one.

use domain::SegmentKey;

/// Published by a segment's script when its outbox was drained and has something again; the payload is `ITEM:SEGMENT`.
/// The scripts have this name too; `tests/it/headers.rs` holds them together.
pub(crate) const OUTBOX_CHANNEL: &str = "stockade:outbox";

/// Published by the recorder: `ITEM:SEGMENT CHECKPOINT [REJECTED ORDER]...`.
pub(crate) const RECORDED_CHANNEL: &str = "stockade:recorded";

/// Published by a segment's script when units have come back to it; the payload is `ITEM:SEGMENT AVAILABLE`. The scripts have this name too.
pub(crate) const RETURNED_CHANNEL: &str = "stockade:returned";

/// In `buyers`, stands before the id of a buyer who has given something back. No id of a buyer can begin with it. The scripts have it too.
///
/// A buyer's count ends when nothing is held any more, but the answer to an order that was given back stands for good, and the sold-out
/// hint has to know for whom it must not answer.
pub(crate) const GAVE_BACK: char = '\n';

/// Published for an order that no segment alone has enough units for; the payload is `ITEM UNITS`. A reconciler gathers them.
pub(crate) const GATHER_CHANNEL: &str = "stockade:gather";

/// The keys of one segment. They share a hash tag, so a cluster keeps them in one slot and one script may touch them all.
#[derive(Debug)]
pub(crate) struct Keys {
    /// Which segment.
    pub segment: SegmentKey,
    /// The segment's name, as the scripts publish it.
    pub name: String,
    /// hash: available, limit, state, opens_ms, closes_ms, epoch, fence, hold_ms, last, segments, mending, restored
    pub stock: String,
    /// hash: order id -> answer, and transfer id -> units that it moved
    pub answers: String,
    /// hash: buyer id -> units counted against the limit, and [`GAVE_BACK`] with a buyer id -> 1
    pub buyers: String,
    /// stream: every change
    pub outbox: String,
    /// zset: unfinished walks by the time they fall due
    pub walks: String,
}

impl Keys {
    pub(crate) fn of(segment: &SegmentKey) -> Self {
        let name = segment.to_string();
        let key = |kind: &str| format!("{kind}:{{{name}}}");
        Self {
            segment: segment.clone(),
            stock: key("stock"),
            answers: key("answers"),
            buyers: key("buyers"),
            outbox: key("outbox"),
            walks: key("walks"),
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
            &keys.answers,
            &keys.buyers,
            &keys.outbox,
            &keys.walks,
        ] {
            assert!(key.ends_with(":{maotai:7}"), "{key}");
        }
    }
}

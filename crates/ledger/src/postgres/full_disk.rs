//! Whether the server's disk was full a moment ago.
//!
//! Reads and connecting go on with a full disk, and so does a small write that finds room in its
//! page. So nothing that a probe may do each second tells of it, but the refused writes of the
//! process do. Like the doubt about connections, it counts for the whole process.

use std::{
    sync::{PoisonError, RwLock},
    time::{Duration, Instant},
};

/// How long a refusal counts. A balancer sends nothing to a process that is not ready, so there may
/// be no commit that ends it earlier.
const BELIEVED_FOR: Duration = Duration::from_secs(10);

static LAST: FullDisk = FullDisk(RwLock::new(None));

struct FullDisk(RwLock<Option<Instant>>);

impl FullDisk {
    fn set(&self, at: Option<Instant>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = at;
    }

    fn is_at(&self, now: Instant) -> bool {
        let at = *self.0.read().unwrap_or_else(PoisonError::into_inner);
        at.is_some_and(|at| now.saturating_duration_since(at) < BELIEVED_FOR)
    }

    /// Nearly every commit finds nothing to forget, and takes no lock for writing.
    fn forget(&self) {
        if self
            .0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
        {
            self.set(None);
        }
    }
}

/// A write was refused because the disk is full.
pub(crate) fn remember() {
    LAST.set(Some(Instant::now()));
}

/// A transaction was committed.
pub(super) fn forget() {
    LAST.forget();
}

pub(super) fn is_remembered() -> bool {
    LAST.is_at(Instant::now())
}

#[cfg(test)]
mod tests {
    use super::{BELIEVED_FOR, Duration, FullDisk, Instant, RwLock};

    #[test]
    fn a_full_disk_is_remembered_until_a_commit_or_for_a_while() {
        let (disk, refused) = (FullDisk(RwLock::new(None)), Instant::now());
        assert!(!disk.is_at(refused));
        disk.set(Some(refused));
        let last = refused + BELIEVED_FOR;
        assert!(disk.is_at(refused) && disk.is_at(last - Duration::from_nanos(1)));
        assert!(
            !disk.is_at(last),
            "no order may come to show that there is room"
        );
        disk.forget();
        assert!(!disk.is_at(refused));
    }
}

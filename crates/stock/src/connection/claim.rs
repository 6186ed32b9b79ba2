//! Work that one task at a time may do.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// The right to do it. Dropped, also by a panic or by a runtime that stops, it is given back: a
/// flag that stayed set would end all replacements for good.
pub(super) struct Claim(Arc<AtomicBool>);

impl Claim {
    /// `None`: another task has it.
    pub(super) fn of(flag: &Arc<AtomicBool>) -> Option<Self> {
        let is_taken = flag.swap(true, Ordering::AcqRel);
        (!is_taken).then(|| Self(Arc::clone(flag)))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Claim;

    #[test]
    fn one_has_it_until_it_is_dropped() {
        let flag = Arc::default();
        let first = Claim::of(&flag);
        assert!(first.is_some() && Claim::of(&flag).is_none());
        drop(first);
        assert!(Claim::of(&flag).is_some());
    }
}

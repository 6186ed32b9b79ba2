//! Counts heap allocations of one thread.
//!
//! It counts only allocations by the thread itself. Work on a current-thread runtime is counted
//! with all of its tasks; other threads, and so other tests, are not counted. Each growth of a
//! buffer counts as one allocation.

/// Uncounted rounds at the start. They fill caches and buffers and prepare statements.
const WARM_UP: usize = 4;

/// Counted rounds, of which the cheapest is the result. This excludes a buffer that grows once in a
/// while, or a timer that fires.
const ROUNDS: usize = 8;

/// The allocations of the cheapest of several rounds. Allocations of `prepare` are not counted.
pub fn fewest_allocations<T>(mut prepare: impl FnMut() -> T, mut run: impl FnMut(T)) -> u64 {
    for _ in 0..WARM_UP {
        run(prepare());
    }
    let rounds = (0..ROUNDS).map(|_| {
        let prepared = prepare();
        allocation_counter::measure(|| run(prepared)).count_total
    });
    rounds.min().unwrap_or_default()
}

/// Bytes that this thread has allocated during `run` and not freed, as the allocator was asked for
/// them.
pub fn bytes_kept(run: impl FnOnce()) -> i64 {
    allocation_counter::measure(run).bytes_current
}

/// Upper bound of a cost.
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    /// The counted operation, such as `an order at batch 128`.
    pub what: &'static str,
    /// Maximum number of allocations for each operation.
    pub most: f64,
}

impl Bound {
    /// Asserts that `allocations` for `count` operations are within the bound.
    ///
    /// # Panics
    ///
    /// If there are more.
    #[track_caller]
    pub fn check(self, allocations: u64, count: usize) {
        let Self { what, most } = self;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let each = allocations as f64 / count.max(1) as f64;
        eprintln!("{what} costs {each:.2} allocations (at most {most})");
        assert!(
            each <= most,
            "{what} costs {each:.2} allocations, at most {most} allowed: its code allocates more than before. Remove the allocation, or raise the bound and document why"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::{Bound, bytes_kept, fewest_allocations};

    const BOUND: Bound = Bound {
        what: "a box",
        most: 1.0,
    };

    fn boxes(count: usize) -> u64 {
        fewest_allocations(
            || vec![0; count],
            |numbers: Vec<usize>| {
                numbers
                    .into_iter()
                    .for_each(|number| drop(black_box(Box::new(number))))
            },
        )
    }

    #[test]
    fn allocations_of_a_round_count_and_those_of_its_preparation_do_not() {
        assert_eq!(boxes(100), 100);
        BOUND.check(boxes(100), 100);
    }

    #[test]
    fn bytes_that_are_freed_are_not_kept() {
        let mut kept = Vec::new();
        let bytes = bytes_kept(|| {
            kept = vec![1_u8; 1000];
            drop(black_box(vec![1_u8; 500]));
        });
        assert_eq!((bytes, kept.len()), (1000, 1000));
    }

    #[test]
    #[should_panic(expected = "a box costs 1.01 allocations, at most 1 allowed")]
    fn one_extra_allocation_in_a_hundred_exceeds_the_bound() {
        BOUND.check(boxes(101), 100);
    }

    #[test]
    fn allocations_of_other_threads_do_not_count() {
        let spent = fewest_allocations(
            || (),
            |()| {
                std::thread::scope(|threads| {
                    // Starting a thread allocates here; the boxes are allocated on the new thread.
                    threads
                        .spawn(|| (0..1000).for_each(|number| drop(black_box(Box::new(number)))));
                });
            },
        );
        assert!(spent < 100, "{spent}");
    }
}

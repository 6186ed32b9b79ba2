//! Allocations of one thread.
//!
//! Only what the thread itself allocates is counted: work on a current-thread runtime is counted with all of its tasks, and whatever other
//! threads do meanwhile, other tests included, is not. A buffer that grows counts each time.

/// Rounds before the first that counts: caches, buffers and prepared statements are made in them.
const WARM_UP: usize = 4;

/// Rounds of which the cheapest counts. A buffer that must grow once in a while, or a timer that fires, then does not.
const ROUNDS: usize = 8;

/// The allocations of the cheapest of several rounds. What `prepare` makes is not counted.
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

/// What something may cost.
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    /// What is counted, such as `an order at batch 128`.
    pub what: &'static str,
    /// How many allocations each may cost.
    pub most: f64,
}

impl Bound {
    /// That `allocations` for `count` of them are within the bound.
    ///
    /// # Panics
    ///
    /// If they are more.
    #[track_caller]
    pub fn check(self, allocations: u64, count: usize) {
        let Self { what, most } = self;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let each = allocations as f64 / count.max(1) as f64;
        eprintln!("{what} costs {each:.2} allocations (at most {most})");
        assert!(
            each <= most,
            "{what} costs {each:.2} allocations, more than the {most} it may: something on its way allocates that did not before. Take it out, or raise the bound and say why"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::{Bound, fewest_allocations};

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
    fn what_a_round_allocates_is_counted_and_what_prepares_it_is_not() {
        assert_eq!(boxes(100), 100);
        BOUND.check(boxes(100), 100);
    }

    #[test]
    #[should_panic(expected = "a box costs 1.01 allocations, more than the 1 it may")]
    fn one_more_in_a_hundred_is_noticed() {
        BOUND.check(boxes(101), 100);
    }

    #[test]
    fn other_threads_do_not_count() {
        let spent = fewest_allocations(
            || (),
            |()| {
                std::thread::scope(|threads| {
                    // Starting a thread allocates here, and the boxes are there.
                    threads
                        .spawn(|| (0..1000).for_each(|number| drop(black_box(Box::new(number)))));
                });
            },
        );
        assert!(spent < 100, "{spent}");
    }
}

//! The rules that the walk rests on, one switch each, so that each can be left out alone.

/// A moment, in ticks.
pub type Time = u8;

/// How far apart two clocks may be: `now` is the fastest clock, and every script may read one that is this far behind.
pub const CLOCK_ERROR: Time = 1;
/// How far in the future an attempt may put its deadline.
pub const PATIENCE: Time = 2;

/// The rules. [`Rules::ALL`] is the protocol; a weakened variant leaves one out.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// A segment that passed an order repeats it, even if stock has come back.
    pub sticky_passed: bool,
    /// `ask_home` and `ask_next` refuse a late ask.
    pub deadline_in_asks: bool,
    /// `finish_walk` refuses a late outcome: it may be that of an earlier walk of the same order.
    pub deadline_in_finish: bool,
    /// Home remembers the latest deadline that any attempt presented, not the first one.
    pub home_remembers_the_latest_deadline: bool,
    /// A final walk is forgotten only when the remembered deadline is over.
    pub wait_for_deadlines: bool,
    /// "Over" includes a margin that covers the difference between clocks.
    pub margin_covers_the_clocks: bool,
    /// The other segments forget before home does.
    pub home_last: bool,
    /// A `passed` record has no lifetime of its own.
    pub passed_never_expires: bool,
    /// `forget_passes` drops only a record whose deadline the forgotten walk knew.
    pub forget_passes_knows_its_walk: bool,
    /// `forget_walk` drops only the walk that the worker had read.
    pub forget_walk_knows_its_walk: bool,
    /// A segment that got a unit back answers `released` to its order for good, and home does.
    pub released_is_remembered: bool,
    /// Home gives a count back only for an order that it still counts.
    pub count_comes_back_once: bool,
    /// The count is given back before the unit is.
    pub count_comes_back_first: bool,
    /// The count of an order that mending rejected is given back like that of one that was cancelled.
    pub rejected_gives_its_count_back: bool,
}

impl Rules {
    /// The protocol.
    pub const ALL: Self = Self {
        sticky_passed: true,
        deadline_in_asks: true,
        deadline_in_finish: true,
        home_remembers_the_latest_deadline: true,
        wait_for_deadlines: true,
        margin_covers_the_clocks: true,
        home_last: true,
        passed_never_expires: true,
        forget_passes_knows_its_walk: true,
        forget_walk_knows_its_walk: true,
        released_is_remembered: true,
        count_comes_back_once: true,
        count_comes_back_first: true,
        rejected_gives_its_count_back: true,
    };

    /// Whether an ask with this deadline may still be obeyed somewhere. Nobody must obey: to refuse is to lose the message.
    pub fn obeys_ask(self, now: Time, deadline: Time) -> bool {
        !self.deadline_in_asks || now <= deadline + CLOCK_ERROR
    }

    /// Whether an outcome with this deadline may still be obeyed at home.
    pub fn obeys_finish(self, now: Time, deadline: Time) -> bool {
        !self.deadline_in_finish || now <= deadline + CLOCK_ERROR
    }

    /// Whether a final walk with this remembered deadline may be forgotten.
    pub fn may_forget(self, now: Time, remembered: Time) -> bool {
        let margin = if self.margin_covers_the_clocks {
            CLOCK_ERROR
        } else {
            0
        };
        !self.wait_for_deadlines || now > remembered + margin
    }
}

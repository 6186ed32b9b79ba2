//! The rules that the spillover rests on, one switch each, so that each can be left out alone.

/// A moment, in ticks.
pub type Time = u8;

/// How far apart two clocks may be: `now` is the fastest clock, and every script may read one that
/// is this far behind.
pub const CLOCK_ERROR: Time = 1;
/// How far in the future an attempt may put its deadline.
pub const PATIENCE: Time = 2;

/// The rules. [`Rules::ALL`] is the protocol; a weakened variant leaves one out.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// A segment that declined an order repeats it, even if stock has come back.
    pub declined_is_recorded: bool,
    /// `reserve_home` and `reserve_next` refuse a late ask.
    pub deadline_in_reservations: bool,
    /// `finish_spillover` refuses a late outcome: it may be that of an earlier spillover of the
    /// same order.
    pub deadline_in_finish: bool,
    /// Home remembers the latest deadline that any attempt presented, not the first one.
    pub home_remembers_the_latest_deadline: bool,
    /// A final spillover is forgotten only when the remembered deadline is over.
    pub wait_for_deadlines: bool,
    /// "Over" includes a margin that covers the difference between clocks.
    pub margin_covers_the_clocks: bool,
    /// The other segments forget before home does.
    pub home_last: bool,
    /// A `declined` record never expires by itself.
    pub declined_never_expires: bool,
    /// `forget_declined` drops only a record whose deadline the forgotten spillover knew.
    pub forget_declined_knows_its_spillover: bool,
    /// `forget_spillover` drops only the spillover that the worker had read.
    pub forget_spillover_knows_its_spillover: bool,
    /// A segment that got a unit back answers `released` to its order permanently, and home does.
    pub released_is_remembered: bool,
    /// Home gives a count back only for an order that it still counts.
    pub count_comes_back_once: bool,
    /// The count is released before the unit is.
    pub count_comes_back_first: bool,
    /// The count of an order that repair rejected is released like that of one that was
    /// cancelled.
    pub rejected_gives_its_count_back: bool,
    /// The next round begins only after every segment has declined the last one.
    pub round_follows_declines_of_all: bool,
    /// A segment that has declined a round repeats it, and any lower one.
    pub round_is_decided_once: bool,
    /// Home decides a new round before any other segment does.
    pub home_opens_the_round: bool,
    /// "Sold out" names the round that every segment has declined; home refuses it in a later one.
    pub sold_out_names_its_round: bool,
    /// Home accepts an end of a later round than its own: a failover lost what it declined last.
    pub later_round_ends_it: bool,
    /// An order that was given up is reopened in the round after the one that all have declined.
    pub reopened_in_the_next_round: bool,
    /// An order that is reopened is counted again.
    pub reopened_is_counted: bool,
    /// A new round does not reopen an order that home calls sold out.
    pub sold_out_is_final: bool,
    /// The caller is told "sold out" only when home says so.
    pub told_by_home: bool,
}

impl Rules {
    /// The protocol.
    pub const ALL: Self = Self {
        declined_is_recorded: true,
        deadline_in_reservations: true,
        deadline_in_finish: true,
        home_remembers_the_latest_deadline: true,
        wait_for_deadlines: true,
        margin_covers_the_clocks: true,
        home_last: true,
        declined_never_expires: true,
        forget_declined_knows_its_spillover: true,
        forget_spillover_knows_its_spillover: true,
        released_is_remembered: true,
        count_comes_back_once: true,
        count_comes_back_first: true,
        rejected_gives_its_count_back: true,
        round_follows_declines_of_all: true,
        round_is_decided_once: true,
        home_opens_the_round: true,
        sold_out_names_its_round: true,
        later_round_ends_it: true,
        reopened_in_the_next_round: true,
        reopened_is_counted: true,
        sold_out_is_final: true,
        told_by_home: true,
    };

    /// Whether an ask with this deadline may still be obeyed by a segment. No segment must: to
    /// refuse is to lose the message.
    pub fn obeys_reservation(self, now: Time, deadline: Time) -> bool {
        !self.deadline_in_reservations || now <= deadline + CLOCK_ERROR
    }

    /// Whether an outcome with this deadline may still be obeyed at home.
    pub fn obeys_finish(self, now: Time, deadline: Time) -> bool {
        !self.deadline_in_finish || now <= deadline + CLOCK_ERROR
    }

    /// Whether "all have declined `round`" ends an order of which home has declined `declined`.
    pub fn ends(self, declined: u8, round: u8) -> bool {
        let may_be_later = self.later_round_ends_it;
        !self.sold_out_names_its_round || declined == round || may_be_later && declined < round
    }

    /// Whether a final spillover with this remembered deadline may be forgotten.
    pub fn may_forget(self, now: Time, remembered: Time) -> bool {
        let margin = if self.margin_covers_the_clocks {
            CLOCK_ERROR
        } else {
            0
        };
        !self.wait_for_deadlines || now > remembered + margin
    }
}

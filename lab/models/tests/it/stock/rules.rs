//! The rules that the spillover rests on, one switch each, so that each can be left out alone.

/// A moment, in ticks.
pub type Time = u8;

/// How far apart two clocks may be: `now` is the fastest clock, and every script may read one that
/// is this far behind.
pub const CLOCK_ERROR: Time = 1;
/// How far in the future an attempt may put its deadline.
pub const PATIENCE: Time = 2;

rules! {
    /// A segment that declined an order repeats it, even if stock has come back.
    declined_is_recorded,
    /// `reserve_home` and `reserve_next` refuse a late ask.
    deadline_in_reservations,
    /// `finish_spillover` refuses a late outcome: it may be that of an earlier spillover of the
    /// same order.
    deadline_in_finish,
    /// Home remembers the latest deadline that any attempt presented, not the first one.
    home_remembers_the_latest_deadline,
    /// A final spillover is forgotten only when the remembered deadline is over.
    wait_for_deadlines,
    /// "Over" includes a margin that covers the difference between clocks.
    margin_covers_the_clocks,
    /// The other segments forget before home does.
    home_last,
    /// A `declined` record never expires by itself.
    declined_never_expires,
    /// `forget_declined` drops only a record whose deadline the forgotten spillover knew.
    forget_declined_knows_its_spillover,
    /// `forget_spillover` drops only the spillover that the worker had read.
    forget_spillover_knows_its_spillover,
    /// A segment that got a unit back answers `released` to its order permanently, and home does.
    released_is_remembered,
    /// Home gives a count back only for an order that it still counts.
    count_comes_back_once,
    /// The count is released before the unit is.
    count_comes_back_first,
    /// The count of an order that repair rejected is released like that of one that was
    /// cancelled.
    rejected_gives_its_count_back,
    /// The next round begins only after every segment has declined the last one.
    round_follows_declines_of_all,
    /// A segment that has declined a round repeats it, and any lower one.
    round_is_decided_once,
    /// Home decides a new round before any other segment does.
    home_opens_the_round,
    /// "Sold out" names the round that every segment has declined; home refuses it in a later one.
    sold_out_names_its_round,
    /// Home accepts an end of a later round than its own: a failover lost what it declined last.
    later_round_ends_it,
    /// An order that was given up is reopened in the round after the one that all have declined.
    reopened_in_the_next_round,
    /// An order that is reopened is counted again.
    reopened_is_counted,
    /// A new round does not reopen an order that home calls sold out.
    sold_out_is_final,
    /// The caller is told "sold out" only when home says so.
    told_by_home,
}

impl Rules {
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

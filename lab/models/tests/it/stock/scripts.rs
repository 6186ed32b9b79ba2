//! The scripts of `lua/`, as functions of the state: one atomic step each.

use super::{
    rules::{Rules, Time},
    state::{Decision, End, HOME, Order, Record, State},
};

/// What an ask answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// Late, or the buyer has reached the limit: nothing was written.
    Refused,
    /// The segment's answer to the order, new or repeated.
    Replied(Decision),
}

/// `reserve_home`: repeats a known answer and remembers the deadline; else counts the buyer and
/// takes or passes.
pub fn reserve_home(
    rules: Rules,
    limit: u8,
    state: &mut State,
    order: usize,
    deadline: Time,
) -> Reply {
    if !rules.obeys_reservation(state.now, deadline) {
        return Reply::Refused;
    }
    let known = state.orders[order].home();
    if known == Decision::None {
        if state.counted >= limit {
            return Reply::Refused;
        }
        state.counted += 1;
    }
    let decision = take_or_decline(rules, state, order, HOME, deadline, 0);
    let Order {
        records,
        in_spillovers,
        ..
    } = &mut state.orders[order];
    let home = &mut records[HOME];
    if known == Decision::Declined && rules.home_remembers_the_latest_deadline {
        home.deadline = home.deadline.max(Some(deadline));
    }
    // Only the weakened segment, which takes after it has declined, comes here with a spillover and
    // without `declined`.
    *in_spillovers |= decision == Decision::Declined;
    Reply::Replied(decision)
}

/// `reserve_again`: a segment that has declined an earlier round decides once more. Home, which
/// counts the buyer, must know the order; another segment decides one that it has not seen.
pub fn reserve_again(
    rules: Rules,
    state: &mut State,
    order: usize,
    segment: usize,
    deadline: Time,
    round: u8,
) -> Reply {
    if !rules.obeys_reservation(state.now, deadline) {
        return Reply::Refused;
    }
    if segment == HOME {
        let home = &mut state.orders[order].records[HOME];
        match home.decision {
            Decision::None => return Reply::Refused,
            Decision::Declined => home.deadline = home.deadline.max(Some(deadline)),
            Decision::SoldOut if !rules.sold_out_is_final => home.decision = Decision::Declined,
            _ => {}
        }
    }
    Reply::Replied(take_or_decline(
        rules, state, order, segment, deadline, round,
    ))
}

/// `reserve_next`: the same at another segment, without the count and without `spillovers`.
pub fn reserve_next(
    rules: Rules,
    state: &mut State,
    order: usize,
    segment: usize,
    deadline: Time,
) -> Reply {
    if !rules.obeys_reservation(state.now, deadline) {
        return Reply::Refused;
    }
    Reply::Replied(take_or_decline(rules, state, order, segment, deadline, 0))
}

fn take_or_decline(
    rules: Rules,
    state: &mut State,
    order: usize,
    segment: usize,
    deadline: Time,
    round: u8,
) -> Decision {
    let available = &mut state.available[segment];
    let Order {
        records,
        promised,
        takes,
        ..
    } = &mut state.orders[order];
    let record = &mut records[segment];
    let declined = record.decision == Decision::Declined;
    let is_later = round > record.round || round == record.round && !rules.round_is_decided_once;
    let decides = record.decision == Decision::None
        || declined && (!rules.declined_is_recorded || round > 0 && is_later);
    if decides && *available > 0 {
        *available -= 1;
        *takes += 1;
        record.decision = Decision::Taken;
        record.deadline = record.deadline.filter(|_| segment == HOME);
        record.round = 0;
    } else if decides {
        *record = Record {
            decision: Decision::Declined,
            deadline: record.deadline.max(Some(deadline)),
            round: record.round.max(round),
        };
    }
    *promised |= matches!(record.decision, Decision::Taken | Decision::TakenElsewhere);
    record.decision
}

/// `finish_spillover`: a spillover that home has declined becomes final; one that took nothing
/// gives the buyer's count back.
pub fn finish_spillover(
    rules: Rules,
    state: &mut State,
    order: usize,
    end: End,
    deadline: Time,
    round: u8,
) {
    let Order {
        records, refused, ..
    } = &mut state.orders[order];
    let home = &mut records[HOME];
    if rules.obeys_finish(state.now, deadline) && home.decision == Decision::Declined {
        if end == End::Elsewhere {
            home.decision = Decision::TakenElsewhere;
        } else if rules.ends(home.round, round) {
            home.decision = match end {
                End::GivenUp => Decision::GivenUp,
                _ => Decision::SoldOut,
            };
            home.round = home.round.max(round);
            state.counted = state.counted.saturating_sub(1);
        }
    }
    let home = records[HOME].decision;
    *refused |= end == End::SoldOut && (home == Decision::SoldOut || !rules.told_by_home);
}

/// `reopen_spillover`: an order that home has given up is pending again, in the next round. Home
/// has declined that round, without a look at its units.
pub fn reopen_spillover(
    rules: Rules,
    limit: u8,
    state: &mut State,
    order: usize,
    deadline: Time,
) -> Reply {
    if !rules.obeys_reservation(state.now, deadline) {
        return Reply::Refused;
    }
    let Order {
        records,
        in_spillovers,
        ..
    } = &mut state.orders[order];
    let home = &mut records[HOME];
    if home.decision == Decision::GivenUp {
        if state.counted >= limit {
            return Reply::Refused;
        }
        state.counted += u8::from(rules.reopened_is_counted);
        *home = Record {
            decision: Decision::Declined,
            deadline: home.deadline.max(Some(deadline)),
            round: home.round + u8::from(rules.reopened_in_the_next_round),
        };
        *in_spillovers = true;
    }
    Reply::Replied(home.decision)
}

/// Not a script: a failover loses the last round that home has declined.
pub fn lose_round(state: &mut State, order: usize) {
    state.orders[order].records[HOME].round -= 1;
}

/// `due_spillovers`: the remembered deadline of a spillover that is final and may be forgotten.
pub fn due_spillover(rules: Rules, state: &State, order: usize) -> Option<Time> {
    let Order {
        records,
        in_spillovers,
        ..
    } = &state.orders[order];
    let is_final = !matches!(records[HOME].decision, Decision::None | Decision::Declined);
    records[HOME]
        .deadline
        .filter(|remembered| *in_spillovers && is_final && rules.may_forget(state.now, *remembered))
}

/// `forget_declined`: drops `declined` at a segment other than home, if the forgotten spillover
/// knew its deadline.
pub fn forget_declined(rules: Rules, state: &mut State, order: usize, segment: usize, until: Time) {
    let record = &mut state.orders[order].records[segment];
    let knows = !rules.forget_declined_knows_its_spillover || record.deadline <= Some(until);
    if record.decision == Decision::Declined && knows {
        *record = Record::default();
    }
}

/// `forget_spillover`: takes the spillover off the list, and with it a "sold out", if it is due and
/// still the one that was read.
pub fn forget_spillover(rules: Rules, state: &mut State, order: usize, until: Time) {
    let Some(remembered) = due_spillover(rules, state, order) else {
        return;
    };
    if rules.forget_spillover_knows_its_spillover && remembered != until {
        return;
    }
    let Order {
        records,
        in_spillovers,
        refused,
        ..
    } = &mut state.orders[order];
    *in_spillovers = false;
    records[HOME].deadline = None;
    if matches!(
        records[HOME].decision,
        Decision::SoldOut | Decision::GivenUp
    ) {
        records[HOME] = Record::default();
        *refused = false;
    }
}

/// `release_count`: at home, for an order whose unit is elsewhere.
pub fn release_count(rules: Rules, state: &mut State, order: usize) {
    let home = &mut state.orders[order].records[HOME];
    if matches!(home.decision, Decision::Declined | Decision::TakenElsewhere) {
        home.decision = released(rules);
    } else if rules.count_comes_back_once {
        return;
    }
    state.counted = state.counted.saturating_sub(1);
}

/// `release`: the unit comes back; and at home the count, too.
pub fn release(rules: Rules, state: &mut State, order: usize, segment: usize) {
    let record = &mut state.orders[order].records[segment];
    if record.decision != Decision::Taken {
        return;
    }
    record.decision = released(rules);
    state.available[segment] += 1;
    if segment == HOME {
        state.counted = state.counted.saturating_sub(1);
    }
}

/// `halt_segment`, `restore_orders`, `adjust`: the ledger could not cover the order. The unit was
/// never there.
pub fn reject(state: &mut State, order: usize, segment: usize) {
    state.orders[order].records[segment].decision = Decision::Released;
    state.outside += 1;
    if segment == HOME {
        state.counted -= 1;
    }
}

fn released(rules: Rules) -> Decision {
    if rules.released_is_remembered {
        Decision::Released
    } else {
        Decision::None
    }
}

/// Not in the protocol: a `declined` record that simply expires, once the ask that wrote it is
/// over.
pub fn may_expire(rules: Rules, state: &State, order: usize, segment: usize) -> bool {
    let Record {
        decision, deadline, ..
    } = state.orders[order].records[segment];
    !rules.declined_never_expires
        && decision == Decision::Declined
        && deadline.is_some_and(|written| rules.may_forget(state.now, written))
}

//! The scripts of `lua/`, as functions of the state: one atomic step each.

use super::{
    rules::{Rules, Time},
    state::{Answer, HOME, Order, Record, Stage, State},
};

/// What an ask answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// Late, or the buyer has reached the limit: nothing was written.
    Refused,
    /// The segment's answer to the order, new or repeated.
    Answered(Answer),
}

/// `ask_home`: repeats a known answer and remembers the deadline; else counts the buyer and takes or passes.
pub fn ask_home(rules: Rules, limit: u8, state: &mut State, order: usize, deadline: Time) -> Reply {
    if !rules.obeys_ask(state.now, deadline) {
        return Reply::Refused;
    }
    let known = state.orders[order].home();
    if known == Answer::None {
        if state.counted >= limit {
            return Reply::Refused;
        }
        state.counted += 1;
    }
    let answer = take_or_pass(rules, state, order, HOME, deadline);
    let Order {
        records, in_walks, ..
    } = &mut state.orders[order];
    let home = &mut records[HOME];
    if known == Answer::Passed && rules.home_remembers_the_latest_deadline {
        home.deadline = home.deadline.max(Some(deadline));
    }
    // Only the weakened segment, which takes after it has passed, comes here with a walk and without `passed`.
    *in_walks |= answer == Answer::Passed;
    Reply::Answered(answer)
}

/// `ask_next`: the same at another segment, without the count and without `walks`.
pub fn ask_next(
    rules: Rules,
    state: &mut State,
    order: usize,
    segment: usize,
    deadline: Time,
) -> Reply {
    if !rules.obeys_ask(state.now, deadline) {
        return Reply::Refused;
    }
    Reply::Answered(take_or_pass(rules, state, order, segment, deadline))
}

fn take_or_pass(
    rules: Rules,
    state: &mut State,
    order: usize,
    segment: usize,
    deadline: Time,
) -> Answer {
    let available = &mut state.available[segment];
    let Order {
        records,
        promised,
        takes,
        ..
    } = &mut state.orders[order];
    let record = &mut records[segment];
    let decides =
        record.answer == Answer::None || record.answer == Answer::Passed && !rules.sticky_passed;
    if decides && *available > 0 {
        *available -= 1;
        *takes += 1;
        record.answer = Answer::Taken;
        record.deadline = record.deadline.filter(|_| segment == HOME);
    } else if record.answer == Answer::None {
        *record = Record {
            answer: Answer::Passed,
            deadline: Some(deadline),
        };
    }
    *promised |= matches!(record.answer, Answer::Taken | Answer::TakenElsewhere);
    record.answer
}

/// `finish_walk`: a walk that home has passed becomes final; a sold-out one gives the buyer's count back.
pub fn finish_walk(rules: Rules, state: &mut State, order: usize, stage: Stage, deadline: Time) {
    let home = &mut state.orders[order].records[HOME];
    if !rules.obeys_finish(state.now, deadline) || home.answer != Answer::Passed {
        return;
    }
    if stage == Stage::AllPassed {
        home.answer = Answer::SoldOut;
        state.counted = state.counted.saturating_sub(1);
    } else {
        home.answer = Answer::TakenElsewhere;
    }
}

/// `due_walks`: the remembered deadline of a walk that is final and may be forgotten.
pub fn due_walk(rules: Rules, state: &State, order: usize) -> Option<Time> {
    let Order {
        records, in_walks, ..
    } = &state.orders[order];
    let is_final = matches!(
        records[HOME].answer,
        Answer::TakenElsewhere | Answer::SoldOut | Answer::Released
    );
    records[HOME]
        .deadline
        .filter(|remembered| *in_walks && is_final && rules.may_forget(state.now, *remembered))
}

/// `forget_passes`: drops `passed` at a segment other than home, if the forgotten walk knew its deadline.
pub fn forget_passes(rules: Rules, state: &mut State, order: usize, segment: usize, until: Time) {
    let record = &mut state.orders[order].records[segment];
    let knows = !rules.forget_passes_knows_its_walk || record.deadline <= Some(until);
    if record.answer == Answer::Passed && knows {
        *record = Record::default();
    }
}

/// `forget_walk`: takes the walk off the list, and with it a "sold out", if it is due and still the one that was read.
pub fn forget_walk(rules: Rules, state: &mut State, order: usize, until: Time) {
    let Some(remembered) = due_walk(rules, state, order) else {
        return;
    };
    if rules.forget_walk_knows_its_walk && remembered != until {
        return;
    }
    let Order {
        records, in_walks, ..
    } = &mut state.orders[order];
    *in_walks = false;
    records[HOME].deadline = None;
    if records[HOME].answer == Answer::SoldOut {
        records[HOME].answer = Answer::None;
    }
}

/// `give_back_count`: at home, for an order whose unit is elsewhere.
pub fn give_back_count(rules: Rules, state: &mut State, order: usize) {
    let home = &mut state.orders[order].records[HOME];
    if matches!(home.answer, Answer::Passed | Answer::TakenElsewhere) {
        home.answer = released(rules);
    } else if rules.count_comes_back_once {
        return;
    }
    state.counted = state.counted.saturating_sub(1);
}

/// `release`: the unit comes back; and at home the count, too.
pub fn release(rules: Rules, state: &mut State, order: usize, segment: usize) {
    let record = &mut state.orders[order].records[segment];
    if record.answer != Answer::Taken {
        return;
    }
    record.answer = released(rules);
    state.available[segment] += 1;
    if segment == HOME {
        state.counted = state.counted.saturating_sub(1);
    }
}

/// `halt_segment`, `restore_orders`, `adjust`: the ledger could not cover the order. The unit was never there.
pub fn reject(state: &mut State, order: usize, segment: usize) {
    state.orders[order].records[segment].answer = Answer::Released;
    state.outside += 1;
    if segment == HOME {
        state.counted -= 1;
    }
}

fn released(rules: Rules) -> Answer {
    if rules.released_is_remembered {
        Answer::Released
    } else {
        Answer::None
    }
}

/// Not in the protocol: a `passed` record that simply expires, once the ask that wrote it is over.
pub fn may_expire(rules: Rules, state: &State, order: usize, segment: usize) -> bool {
    let Record { answer, deadline } = state.orders[order].records[segment];
    !rules.passed_never_expires
        && answer == Answer::Passed
        && deadline.is_some_and(|written| rules.may_forget(state.now, written))
}

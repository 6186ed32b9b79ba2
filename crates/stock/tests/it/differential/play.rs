//! Plays a plan, call by call, on the server and on the model, and compares every reply and, at the
//! end, every key.

use std::{collections::BTreeSet, fmt::Write, time::Duration};

use redis::Connection;

use super::{
    call::{self, Batch, Call, Config, Deed, Id, Move, Row, SCRIPTS, buyer, keys},
    compare::compare,
    plan::{
        BUYERS, End, Knows, Margin, Memory, Pick, Plan, SEGMENTS, Setting, Step, Token, When,
        Window,
    },
    reply::Reply,
    segment::{Decision, Seen, Segment, Stock},
};
use crate::transitions::Kind;

const HOLD_MS: i64 = 600_000;
/// How soon a deadline is over that is over soon.
const SOON_MS: i64 = 2;
/// A margin that is longer than a sequence takes, and a deadline that is further away.
const LONG_MS: i64 = 60_000;

/// What was done and seen, over many sequences.
#[derive(Debug, Default)]
pub struct Tally {
    pub sequences: u64,
    pub calls: u64,
    /// Script, answer before, answer after.
    pub transitions: BTreeSet<(&'static str, Kind, Kind)>,
    /// Script and status.
    pub statuses: BTreeSet<(&'static str, String)>,
}

impl Tally {
    pub fn add(&mut self, other: Self) {
        self.sequences += other.sequences;
        self.calls += other.calls;
        self.transitions.extend(other.transitions);
        self.statuses.extend(other.statuses);
    }
}

/// A server, and the name of an item on it that no other test uses.
pub struct Player {
    pub connection: Connection,
    pub item: String,
    pub shas: Vec<String>,
    /// The server's replication id.
    pub history: String,
    pub tally: Tally,
}

/// One sequence under way.
struct Game<'a> {
    player: &'a mut Player,
    segments: [Segment; SEGMENTS as usize],
    start_ms: i64,
    now_ms: i64,
    soon_ms: i64,
    tokens_from: u64,
    made: Vec<(Call, Reply)>,
}

/// What differed, and all that led to it.
type Played = Result<(), String>;

impl Player {
    pub fn new(url: &str, item: String) -> Self {
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        let mut load = redis::pipe();
        for (_, source, _) in SCRIPTS {
            load.cmd("SCRIPT").arg("LOAD").arg(*source);
        }
        let shas = load.query(&mut connection).unwrap();
        let info: redis::InfoDict = redis::cmd("INFO")
            .arg("replication")
            .query(&mut connection)
            .unwrap();
        Self {
            connection,
            item,
            shas,
            history: info.get("master_replid").unwrap(),
            tally: Tally::default(),
        }
    }

    /// Plays the plan from nothing to the end.
    pub fn play(&mut self, plan: &Plan) -> Played {
        let start_ms = self.begin();
        let segments = Default::default();
        let mut game = Game {
            player: self,
            segments,
            start_ms,
            now_ms: start_ms,
            soon_ms: start_ms,
            tokens_from: plan.tokens_from,
            made: vec![],
        };
        game.open(plan)?;
        plan.steps.iter().try_for_each(|step| game.step(step))?;
        game.compare_keys()?;
        game.player.tally.sequences += 1;
        Ok(())
    }

    /// Removes what an earlier sequence left. Returns the server's clock.
    fn begin(&mut self) -> i64 {
        let mut pipe = redis::pipe();
        for segment in 0..SEGMENTS.into() {
            pipe.cmd("DEL")
                .arg(keys(&self.name(segment), "sabow"))
                .ignore();
        }
        pipe.cmd("TIME");
        let [(seconds, micros)]: [(i64, i64); 1] = pipe.query(&mut self.connection).unwrap();
        seconds * 1000 + micros / 1000
    }

    fn name(&self, segment: usize) -> String {
        format!("{}:{segment}", self.item)
    }

    fn send(&mut self, call: &Call) -> Reply {
        let (name, script) = (self.name(call.segment), call.deed.script());
        let at = SCRIPTS
            .iter()
            .position(|(known, ..)| *known == script)
            .unwrap();
        let keys = keys(&name, SCRIPTS[at].2);
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(&self.shas[at])
            .arg(keys.len())
            .arg(keys)
            .arg(call.deed.arguments(&name).0);
        self.tally.calls += 1;
        Reply::of(cmd.query(&mut self.connection))
    }
}

impl Game<'_> {
    fn open(&mut self, plan: &Plan) -> Played {
        for segment in 0..SEGMENTS {
            let config = Config {
                state: "open",
                epoch: 1,
                limit: plan.limit.into(),
                opens_ms: 0,
                closes_ms: 0,
                price: None,
            };
            let segments = if plan.alone == Some(segment) {
                1
            } else {
                SEGMENTS.into()
            };
            if let Some(units) = plan.opened[usize::from(segment)] {
                self.call(
                    segment,
                    Deed::Open {
                        units: units.into(),
                        config,
                        hold_ms: HOLD_MS,
                        segments,
                    },
                )?;
            }
        }
        Ok(())
    }

    /// Makes the call on both sides.
    fn call(&mut self, segment: u8, deed: Deed) -> Played {
        self.make(Call {
            segment: segment.into(),
            deed,
        })
    }

    fn make(&mut self, call: Call) -> Played {
        let reply = self.player.send(&call);
        let before = self.decisions(&call);
        let (last, entries) = (
            self.last(call.segment),
            self.segments[call.segment].outbox.len(),
        );
        let seen = self.see(&call, &reply);
        let expected = self.segments[call.segment].obey(&call.deed, &seen);
        self.note(&call, &before, &reply);
        let wrote = self.segments[call.segment].outbox.len() > entries;
        self.made.push((call, reply.clone()));
        if reply != expected {
            return Err(self.story(&format!(
                "the server answered {reply:?}\n     and the model {expected:?}"
            )));
        }
        if wrote && parse(&seen.entry) <= parse(&last) {
            return Err(self.story(&format!("the entry {} came after {last}", seen.entry)));
        }
        Ok(())
    }

    /// What the model has to be given: the clock, and the id of what was written.
    fn see(&mut self, call: &Call, reply: &Reply) -> Seen {
        let (clock, entry) = match call.deed {
            Deed::ReserveHome { .. }
            | Deed::ReserveNext { .. }
            | Deed::ReserveAgain { .. }
            | Deed::Release { .. } => (Some(1), Some(3)),
            Deed::TransferOut(_) | Deed::TransferIn(_) => (Some(1), Some(4)),
            Deed::FinishSpillover { .. }
            | Deed::ReopenSpillover { .. }
            | Deed::ReleaseCount { .. } => (Some(1), None),
            Deed::DueSpillovers { .. } | Deed::ForgetSpillover { .. } => (Some(0), None),
            Deed::Open { .. } => (None, Some(3)),
            Deed::Halt { .. } => (None, Some(2)),
            Deed::Adjust { .. } => (None, Some(1)),
            Deed::ForgetDeclined { .. }
            | Deed::SettleTransfers { .. }
            | Deed::CheckHome { .. }
            | Deed::MarkChecked { .. }
            | Deed::RestoreDecisions { .. }
            | Deed::RestoreBuyers { .. }
            | Deed::Inspect { .. } => (None, None),
            Deed::SetState(_) => {
                return Seen {
                    now_ms: self.now_ms,
                    entry: self.last_of_server(call.segment),
                    history: self.player.history.clone(),
                };
            }
        };
        if let Some(now_ms) = clock.and_then(|at| reply.field(at)).and_then(Reply::number) {
            // It is the server's: it does not go back, and no other clock is ahead by a day.
            assert!(
                now_ms >= self.now_ms && now_ms < self.start_ms + 86_400_000,
                "the clock of the server says {now_ms}"
            );
            self.now_ms = now_ms;
        }
        let entry = entry
            .and_then(|at| reply.field(at))
            .and_then(Reply::text)
            .unwrap_or_default()
            .to_owned();
        Seen {
            now_ms: self.now_ms,
            entry,
            history: self.player.history.clone(),
        }
    }

    /// `set_state` does not say which entry it wrote.
    fn last_of_server(&mut self, segment: usize) -> String {
        let stock = keys(&self.player.name(segment), "s");
        let last: Option<String> = redis::cmd("HGET")
            .arg(stock)
            .arg("last")
            .query(&mut self.player.connection)
            .unwrap();
        last.unwrap_or_default()
    }

    fn last(&self, segment: usize) -> String {
        self.segments[segment]
            .stock
            .as_ref()
            .map_or_else(String::new, |stock| stock.last.clone())
    }

    fn decisions(&self, call: &Call) -> Vec<(Id, Kind)> {
        let kind = |id: &Id| {
            self.segments[call.segment]
                .decisions
                .get(id)
                .map_or('-', |decision| decision.text().chars().next().unwrap())
        };
        call.deed
            .ids()
            .into_iter()
            .map(|id| (id, kind(&id)))
            .collect()
    }

    fn note(&mut self, call: &Call, before: &[(Id, Kind)], reply: &Reply) {
        let (script, after) = (call.deed.script(), self.decisions(call));
        let changes = before
            .iter()
            .zip(after)
            .filter(|((_, before), (_, after))| before != after);
        self.player
            .tally
            .transitions
            .extend(changes.map(|((_, before), (_, after))| (script, *before, after)));
        if let Some(status) = reply.field(0).and_then(Reply::text) {
            self.player
                .tally
                .statuses
                .insert((script, status.to_owned()));
        }
    }

    fn story(&self, end: &str) -> String {
        let mut story = format!("it began at {}\n", self.start_ms);
        for (Call { segment, deed }, reply) in &self.made {
            let _ = writeln!(story, "  at {segment} {deed:?}\n     -> {reply:?}");
        }
        story + end
    }

    fn step(&mut self, step: &Step) -> Played {
        match step {
            Step::ReserveHome {
                segment,
                picks,
                when,
                margin,
            } => {
                let segment = segment.unwrap_or(home(picks[0].order));
                let (deadline_ms, margin_ms) = (self.deadline(*when), margin_ms(*margin));
                self.call(
                    segment,
                    Deed::ReserveHome {
                        deadline_ms,
                        margin_ms,
                        rows: rows(picks),
                    },
                )
            }
            Step::ReserveNext {
                segment,
                picks,
                when,
            } => {
                let deadline_ms = self.deadline(*when);
                self.call(
                    *segment,
                    Deed::ReserveNext {
                        deadline_ms,
                        rows: rows(picks),
                    },
                )
            }
            Step::ReserveAgain {
                segment,
                picks,
                round,
                when,
                margin,
            } => {
                let segment = segment.unwrap_or(home(picks[0].order));
                let (deadline_ms, margin_ms) = (self.deadline(*when), margin_ms(*margin));
                let again =
                    |pick: &Pick| (row(*pick), (*round).into(), home(pick.order) == segment);
                let rows = picks.iter().map(again).collect();
                self.call(
                    segment,
                    Deed::ReserveAgain {
                        deadline_ms,
                        margin_ms,
                        rows,
                    },
                )
            }
            Step::Spillover {
                order,
                when,
                margin,
                calls,
            } => self.spillover(*order, *when, margin_ms(*margin), (*calls).into()),
            Step::Finish {
                segment,
                spillovers,
                when,
                margin,
            } => {
                let place = || format!("{}:1", self.now_ms);
                let end = |end: End| match end {
                    End::SoldOut(round) => call::End::SoldOut(round.into()),
                    End::GivenUp(round) => call::End::GivenUp(round.into()),
                    End::Elsewhere => call::End::Elsewhere(place()),
                };
                let spillovers = spillovers
                    .iter()
                    .map(|(pick, how)| (row(*pick), end(*how)))
                    .collect();
                let deadline_ms = self.deadline(*when);
                self.call(
                    *segment,
                    Deed::FinishSpillover {
                        deadline_ms,
                        margin_ms: margin_ms(*margin),
                        spillovers,
                    },
                )
            }
            Step::Reopen {
                segment,
                pick,
                when,
            } => {
                let (deadline_ms, row) = (self.deadline(*when), row(*pick));
                self.call(
                    segment.unwrap_or(home(pick.order)),
                    Deed::ReopenSpillover { deadline_ms, row },
                )
            }
            Step::GiveUp {
                order,
                when,
                margin,
                reopens,
            } => self.give_up(*order, *when, margin_ms(*margin), *reopens),
            Step::DueSpillovers {
                segment,
                at_most,
                skip,
            } => self.call(
                *segment,
                Deed::DueSpillovers {
                    at_most: (*at_most).into(),
                    skip: (*skip).into(),
                },
            ),
            Step::ForgetDeclined {
                segment,
                picks,
                knows,
            } => {
                let spillovers = picks
                    .iter()
                    .map(|pick| (row(*pick), self.until(*segment, *pick) + off(*knows)))
                    .collect();
                self.call(*segment, Deed::ForgetDeclined { spillovers })
            }
            Step::ForgetSpillover {
                segment,
                picks,
                knows,
            } => {
                let spillovers = picks
                    .iter()
                    .map(|pick| (row(*pick), self.due(*segment, *pick) + off(*knows)))
                    .collect();
                self.call(*segment, Deed::ForgetSpillover { spillovers })
            }
            Step::Forget { order } => self.forget(*order),
            Step::ReleaseCount {
                segment,
                picks,
                margin,
            } => self.call(
                *segment,
                Deed::ReleaseCount {
                    margin_ms: margin_ms(*margin),
                    rows: rows(picks),
                },
            ),
            Step::Release { segment, picks } => {
                let rows = picks
                    .iter()
                    .map(|pick| (row(*pick), home(pick.order) == *segment))
                    .collect();
                self.call(*segment, Deed::Release { rows })
            }
            Step::ReturnOrder {
                order,
                margin,
                crash,
            } => self.return_order(*order, margin_ms(*margin), *crash),
            Step::TransferOut {
                segment,
                transfer,
                units,
                token,
            } => self.call(
                *segment,
                Deed::TransferOut(Move {
                    transfer: *transfer,
                    units: (*units).into(),
                    token: self.number(*token),
                }),
            ),
            Step::TransferIn {
                segment,
                transfer,
                units,
                token,
            } => self.call(
                *segment,
                Deed::TransferIn(Move {
                    transfer: *transfer,
                    units: (*units).into(),
                    token: self.number(*token),
                }),
            ),
            Step::SettleTransfers {
                segment,
                looked_at_left,
            } => {
                let stock = self.stock(*segment);
                let left = stock.filter(|_| *looked_at_left);
                let left = left.map_or_else(|| "1-1".to_owned(), |stock| stock.left.clone());
                self.call(*segment, Deed::SettleTransfers { left })
            }
            Step::CheckHome {
                segment,
                picks,
                is_other,
            } => {
                let rows = picks
                    .iter()
                    .map(|(pick, has_units)| (row(*pick), *has_units))
                    .collect();
                let history = self.history(*is_other);
                self.call(*segment, Deed::CheckHome { history, rows })
            }
            Step::MarkChecked {
                segment,
                token,
                is_other,
            } => {
                let (token, history) = (self.number(*token), self.history(*is_other));
                self.call(*segment, Deed::MarkChecked { token, history })
            }
            Step::SetState { segment, setting } => {
                self.call(*segment, Deed::SetState(self.config(setting)))
            }
            Step::Halt {
                segment,
                token,
                drop,
            } => self.call(
                *segment,
                Deed::Halt {
                    token: self.number(*token),
                    drop: *drop,
                },
            ),
            Step::RestoreDecisions {
                segment,
                memories,
                margin,
                token,
            } => {
                let decisions = memories
                    .iter()
                    .map(|(pick, memory)| self.memory(*segment, *pick, *memory))
                    .collect();
                let token = self.token(*segment, *token);
                let batch = self.batch(*segment, memories.len());
                self.call(
                    *segment,
                    Deed::RestoreDecisions {
                        token,
                        batch,
                        margin_ms: margin_ms(*margin),
                        decisions,
                    },
                )
            }
            Step::RestoreBuyers {
                segment,
                counts,
                token,
            } => {
                let field = |number, gave_back| {
                    if gave_back {
                        format!("\n{}", buyer(number))
                    } else {
                        buyer(number)
                    }
                };
                let counts = counts
                    .iter()
                    .map(|(number, gave_back, count)| (field(*number, *gave_back), (*count).into()))
                    .collect();
                let batch = self.batch(*segment, 0);
                self.call(
                    *segment,
                    Deed::RestoreBuyers {
                        token: self.token(*segment, *token),
                        batch,
                        counts,
                    },
                )
            }
            Step::Adjust {
                segment,
                available,
                setting,
                token,
                looked_at_last,
            } => {
                let last = if *looked_at_last {
                    self.last((*segment).into())
                } else {
                    "1-1".into()
                };
                let (token, config, segments) = (
                    self.token(*segment, *token),
                    self.config(setting),
                    SEGMENTS.into(),
                );
                let restored = self.restored(*segment) + u64::from(*available == 6);
                let (available, leaving) = ((*available).into(), u64::from(*available) / 2);
                self.call(
                    *segment,
                    Deed::Adjust {
                        token,
                        last,
                        restored,
                        available,
                        leaving,
                        config,
                        hold_ms: HOLD_MS,
                        segments,
                    },
                )
            }
            Step::Repair {
                segment,
                lost,
                memories,
                margin,
                available,
                setting,
            } => {
                if *lost {
                    self.lose((*segment).into());
                }
                self.repair(
                    *segment,
                    memories,
                    margin_ms(*margin),
                    ((*available).into(), self.config(setting)),
                )
            }
            Step::Open {
                segment,
                units,
                setting,
            } => {
                let (units, config, segments) =
                    ((*units).into(), self.config(setting), SEGMENTS.into());
                self.call(
                    *segment,
                    Deed::Open {
                        units,
                        config,
                        hold_ms: HOLD_MS,
                        segments,
                    },
                )
            }
            Step::Inspect {
                segment,
                from,
                at_most,
            } => {
                let from = ["".to_owned(), "-".to_owned(), self.last((*segment).into())]
                    [usize::from(*from)]
                .clone();
                let at_most = (*at_most).into();
                self.call(*segment, Deed::Inspect { from, at_most })
            }
            Step::Again { back } => match self.made.len().checked_sub(usize::from(*back) + 1) {
                Some(at) => self.make(self.made[at].0.clone()),
                None => Ok(()),
            },
            Step::Lose { segment } => {
                self.lose((*segment).into());
                Ok(())
            }
            Step::Wait => {
                self.wait();
                Ok(())
            }
        }
    }

    /// As the crate spillovers, for at most `calls` calls.
    fn spillover(&mut self, order: u8, when: When, margin_ms: i64, calls: usize) -> Played {
        let (row, deadline_ms) = (row(Pick::of(order)), self.deadline(when));
        let ring: Vec<u8> = (0..SEGMENTS)
            .map(|step| (home(order) + step) % SEGMENTS)
            .collect();
        let sold_out = order % 3 != 2;
        let end = if sold_out {
            call::End::SoldOut(0)
        } else {
            call::End::GivenUp(0)
        };
        let (mut end, mut calls) = (end, calls);
        for segment in &ring {
            if calls == 0 {
                return Ok(());
            }
            calls -= 1;
            let rows = vec![row.clone()];
            if *segment == ring[0] {
                self.call(
                    *segment,
                    Deed::ReserveHome {
                        deadline_ms,
                        margin_ms,
                        rows,
                    },
                )?;
            } else {
                self.call(*segment, Deed::ReserveNext { deadline_ms, rows })?;
            }
            match self.decision(*segment, &row) {
                Some(Decision::Declined { .. }) => {}
                Some(Decision::Taken { expires_ms, .. }) if *segment != ring[0] => {
                    end = call::End::Elsewhere(format!("{expires_ms}:{segment}"));
                    break;
                }
                _ => return Ok(()),
            }
        }
        if calls == 0 {
            return Ok(());
        }
        self.call(
            ring[0],
            Deed::FinishSpillover {
                deadline_ms,
                margin_ms,
                spillovers: vec![(row, end)],
            },
        )
    }

    fn give_up(&mut self, order: u8, when: When, margin_ms: i64, reopens: bool) -> Played {
        let (home, pick) = (home(order), Pick::of(order));
        let deadline_ms = self.deadline(when);
        self.call(
            home,
            Deed::ReserveHome {
                deadline_ms,
                margin_ms,
                rows: vec![row(pick)],
            },
        )?;
        let declined = self.decision(home, &row(pick));
        let Some(&Decision::Declined { round, .. }) = declined else {
            return Ok(());
        };
        self.call(
            home,
            Deed::FinishSpillover {
                deadline_ms,
                margin_ms,
                spillovers: vec![(row(pick), call::End::GivenUp(round))],
            },
        )?;
        if !reopens {
            return self.forget(order);
        }
        let row = row(pick);
        self.call(home, Deed::ReopenSpillover { deadline_ms, row })
    }

    fn forget(&mut self, order: u8) -> Played {
        let (home, pick) = (home(order), Pick::of(order));
        for segment in (0..SEGMENTS).filter(|segment| *segment != home) {
            self.call(
                segment,
                Deed::ForgetDeclined {
                    spillovers: vec![(row(pick), self.until(home, pick))],
                },
            )?;
        }
        self.call(
            home,
            Deed::ForgetSpillover {
                spillovers: vec![(row(pick), self.due(home, pick))],
            },
        )
    }

    /// As the crate releases what the order has.
    fn return_order(&mut self, order: u8, margin_ms: i64, crash: bool) -> Played {
        let (home, row) = (home(order), row(Pick::of(order)));
        let has =
            |segment: &u8| matches!(self.decision(*segment, &row), Some(Decision::Taken { .. }));
        let Some(holder) = (0..SEGMENTS).find(has) else {
            return Ok(());
        };
        if holder != home {
            self.call(
                home,
                Deed::ReleaseCount {
                    margin_ms,
                    rows: vec![row.clone()],
                },
            )?;
        }
        if crash {
            Ok(())
        } else {
            self.call(
                holder,
                Deed::Release {
                    rows: vec![(row, holder == home)],
                },
            )
        }
    }

    /// As a reconciler does it, with the highest token so far.
    fn repair(
        &mut self,
        segment: u8,
        memories: &[(u8, Memory)],
        margin_ms: i64,
        set: (u64, Config),
    ) -> Played {
        let fence = self.stock(segment).map_or(0, |stock| stock.fence);
        let (token, (available, config)) = (fence.max(self.tokens_from), set);
        self.call(segment, Deed::Halt { token, drop: false })?;
        let at_home = |above: u8| Pick::of(segment + BUYERS * above);
        let decisions = memories
            .iter()
            .map(|(above, memory)| self.memory(segment, at_home(*above), *memory))
            .collect();
        self.call(
            segment,
            Deed::RestoreDecisions {
                token,
                batch: self.batch(segment, 0),
                margin_ms,
                decisions,
            },
        )?;
        let counts = vec![(buyer(segment), memories.len().try_into().unwrap())];
        self.call(
            segment,
            Deed::RestoreBuyers {
                token,
                batch: self.batch(segment, 0),
                counts,
            },
        )?;
        let (last, segments) = (self.last(segment.into()), SEGMENTS.into());
        let restored = self.restored(segment);
        self.call(
            segment,
            Deed::Adjust {
                token,
                last,
                restored,
                available,
                leaving: available / 2,
                config,
                hold_ms: HOLD_MS,
                segments,
            },
        )
    }

    fn decision(&self, segment: u8, row: &Row) -> Option<&Decision> {
        let segment = &self.segments[usize::from(segment)];
        segment.decisions.get(&row.id())
    }

    fn stock(&self, segment: u8) -> Option<&Stock> {
        self.segments[usize::from(segment)].stock.as_ref()
    }

    fn restored(&self, segment: u8) -> u64 {
        self.stock(segment).map_or(0, |stock| stock.restored)
    }

    /// The batch that is to come; for some numbers of rows another one, or one that was decided on
    /// another look.
    fn batch(&self, segment: u8, rows: usize) -> Batch {
        let last = if rows == 3 {
            "1-1".into()
        } else {
            self.last(segment.into())
        };
        Batch {
            last,
            step: self.restored(segment) + 1 + u64::from(rows == 2),
        }
    }

    fn lose(&mut self, segment: usize) {
        let keys = keys(&self.player.name(segment), "sabow");
        let () = redis::cmd("DEL")
            .arg(keys)
            .query(&mut self.player.connection)
            .unwrap();
        self.segments[segment] = Segment::default();
    }

    fn wait(&mut self) {
        let left = u64::try_from(self.soon_ms - self.now_ms + 1).unwrap_or(0);
        std::thread::sleep(Duration::from_millis(left));
    }

    fn deadline(&mut self, when: When) -> i64 {
        match when {
            When::Over => self.start_ms - 1000,
            When::Soon => {
                self.soon_ms = self.now_ms + SOON_MS;
                self.soon_ms
            }
            When::Later(later) => self.start_ms + LONG_MS + i64::from(later),
        }
    }

    fn config(&self, setting: &Setting) -> Config {
        let (past, future) = (self.start_ms - 1000, self.start_ms + LONG_MS);
        let (opens_ms, closes_ms) = match setting.window {
            Window::Always => (0, 0),
            Window::Now => (past, future),
            Window::NotYet => (future, 0),
            Window::Over => (0, past),
        };
        Config {
            state: setting.state,
            epoch: setting.epoch.into(),
            limit: setting.limit.into(),
            opens_ms,
            closes_ms,
            price: (setting.limit % 2 == 1).then_some(u64::from(setting.epoch) * 10),
        }
    }

    /// The token of the repairer, unless it is to be another one.
    fn token(&self, segment: u8, other: Option<Token>) -> u64 {
        let repairing = self.stock(segment).and_then(|stock| stock.repairing);
        other
            .map(|token| self.number(token))
            .or(repairing)
            .unwrap_or(self.tokens_from)
    }

    /// The server's history, or one that it does not have.
    fn history(&self, is_other: bool) -> String {
        if is_other {
            "another".to_owned()
        } else {
            self.player.history.clone()
        }
    }

    fn number(&self, token: Token) -> u64 {
        match token {
            Token::Usual(above) => self.tokens_from + u64::from(above),
            Token::Any(number) => number,
        }
    }

    /// The deadline that the segment knows of the spillover, or any.
    fn until(&self, segment: u8, pick: Pick) -> i64 {
        match self.decision(segment, &row(pick)) {
            Some(Decision::Declined { until_ms, .. } | Decision::SoldOut { until_ms, .. }) => {
                *until_ms
            }
            _ => self.start_ms + LONG_MS,
        }
    }

    fn due(&self, segment: u8, pick: Pick) -> i64 {
        self.segments[usize::from(segment)]
            .spillovers
            .get(&row(pick).packed())
            .copied()
            .unwrap_or(self.start_ms)
    }

    fn memory(&self, segment: u8, pick: Pick, memory: Memory) -> (Row, Decision, bool) {
        let (row, expires_ms) = (row(pick), self.start_ms + HOLD_MS);
        let units = row.units;
        let decision = match memory {
            Memory::Taken => Decision::Taken { units, expires_ms },
            Memory::Elsewhere => Decision::Elsewhere {
                units,
                place: format!("{expires_ms}:1"),
            },
            Memory::Released => Decision::Released { units, since_ms: 0 },
        };
        (row, decision, home(pick.order) == segment)
    }

    fn compare_keys(&mut self) -> Played {
        for segment in 0..SEGMENTS.into() {
            let name = self.player.name(segment);
            let compared = compare(&mut self.player.connection, &name, &self.segments[segment]);
            compared.map_err(|difference| self.story(&difference))?;
        }
        Ok(())
    }
}

fn parse(entry: &str) -> domain::EntryId {
    if entry.is_empty() {
        domain::EntryId::default()
    } else {
        entry.parse().unwrap_or_default()
    }
}

fn home(order: u8) -> u8 {
    order % BUYERS % SEGMENTS
}

fn row(pick: Pick) -> Row {
    const UNITS: [u32; super::plan::ORDERS as usize] = [1, 1, 2, 1, 3, 1, 2, 1];
    let units = UNITS[usize::from(pick.order)] + u32::from(pick.other_units);
    Row {
        order: pick.order,
        buyer: pick.order % BUYERS,
        units,
    }
}

fn rows(picks: &[Pick]) -> Vec<Row> {
    picks.iter().copied().map(row).collect()
}

fn margin_ms(margin: Margin) -> i64 {
    match margin {
        Margin::None => 0,
        Margin::Long => LONG_MS,
        Margin::AtOnce => -4 * LONG_MS,
    }
}

fn off(knows: Knows) -> i64 {
    match knows {
        Knows::Earlier => -1,
        Knows::Exactly => 0,
        Knows::Later => 1,
    }
}

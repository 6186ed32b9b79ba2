//! A segment as the headers of `lua/` describe it, in Rust: what each script answers and what it
//! leaves.
//!
//! It is written from the headers and not from the code below them, one order after the other where
//! the scripts decide a batch before they write. Two things it cannot derive and is given: the
//! server's clock, and the ids that the server gives to entries.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    call::{Batch, Config, Deed, End, Id, Move, Row},
    reply::{Reply, TWICE, list},
};

/// What a segment remembers for an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Taken {
        units: u32,
        expires_ms: i64,
    },
    Declined {
        units: u32,
        until_ms: i64,
        round: u32,
    },
    SoldOut {
        units: u32,
        until_ms: i64,
    },
    GivenUp {
        units: u32,
        until_ms: i64,
        round: u32,
    },
    Elsewhere {
        units: u32,
        place: String,
    },
    Released {
        units: u32,
        since_ms: i64,
    },
    WentOut {
        units: u64,
    },
    CameIn {
        units: u64,
    },
}

impl Decision {
    /// In the first round.
    fn declined(units: u32, until_ms: i64) -> Self {
        Self::Declined {
            units,
            until_ms,
            round: 0,
        }
    }

    pub fn text(&self) -> String {
        match self {
            Self::Taken { units, expires_ms } => format!("T{units}x{expires_ms:x}"),
            Self::Declined {
                units,
                until_ms,
                round,
            } => format!("D{units}:{until_ms}{}", later(*round)),
            Self::GivenUp {
                units,
                until_ms,
                round,
            } => format!("N{units}:{until_ms}{}", later(*round)),
            Self::SoldOut { units, until_ms } => format!("S{units}:{until_ms}"),
            Self::Elsewhere { units, place } => format!("E{units}:{place}"),
            Self::Released { units, since_ms } => format!("R{units}:{since_ms}"),
            Self::WentOut { units } => format!("O{units}"),
            Self::CameIn { units } => format!("I{units}"),
        }
    }
}

/// The round of a decision, which the first one leaves out.
fn later(round: u32) -> String {
    match round {
        0 => String::new(),
        round => format!(":{round}"),
    }
}

/// What only the server knows of a call.
#[derive(Debug, Clone)]
pub struct Seen {
    pub now_ms: i64,
    /// The id of the entry that the call wrote, if it wrote one.
    pub entry: String,
    /// The server's replication id.
    pub history: String,
}

/// The hash `stock`.
#[derive(Debug, Clone)]
pub struct Stock {
    pub available: u64,
    pub config: Config,
    pub fence: u64,
    pub repairing: Option<u64>,
    /// Batches that were released since the halt.
    pub restored: u64,
    pub hold_ms: i64,
    pub segments: u64,
    pub last: String,
    /// The last entries by which units came in, and left by a transfer.
    pub gained: String,
    pub left: String,
    pub leaving: u64,
    /// The history in which it was last checked.
    pub checked: Option<String>,
}

/// What an entry does to the counter.
#[derive(Debug, Clone, Copy)]
pub enum Effect {
    Set(u64),
    Add(i64),
}

#[derive(Debug, Clone)]
pub struct Entry {
    pub id: String,
    pub fields: Vec<(&'static str, Vec<u8>)>,
    pub effect: Effect,
}

/// A segment. Without `stock` it is missing, and then there is nothing else either.
#[derive(Debug, Clone, Default)]
pub struct Segment {
    pub stock: Option<Stock>,
    pub decisions: BTreeMap<Id, Decision>,
    /// The hash `buyers`: counts, and a mark for each buyer who gave something back.
    pub buyers: BTreeMap<String, i64>,
    /// When each spillover falls due.
    pub spillovers: BTreeMap<Vec<u8>, i64>,
    pub outbox: Vec<Entry>,
}

/// A refusal in the form of most scripts, or the stock.
macro_rules! present {
    ($segment:ident, $now:expr) => {
        match &mut $segment.stock {
            None => return list!["missing", $now],
            Some(stock) if stock.repairing.is_some() => return list!["repairing", $now],
            Some(stock) => stock,
        }
    };
}

impl Segment {
    /// Does the deed and says what is to be answered.
    pub fn obey(&mut self, deed: &Deed, seen: &Seen) -> Reply {
        match deed {
            Deed::Open {
                units,
                config,
                hold_ms,
                segments,
            } => self.open(seen, *units, config, *hold_ms, *segments),
            Deed::ReserveHome {
                deadline_ms,
                margin_ms,
                rows,
            } => self.reserve_home(seen, *deadline_ms, *margin_ms, rows),
            Deed::ReserveNext { deadline_ms, rows } => self.reserve_next(seen, *deadline_ms, rows),
            Deed::ReserveAgain {
                deadline_ms,
                margin_ms,
                rows,
            } => self.reserve_again(seen, *deadline_ms, *margin_ms, rows),
            Deed::FinishSpillover {
                deadline_ms,
                margin_ms,
                spillovers,
            } => self.finish_spillover(seen, *deadline_ms, *margin_ms, spillovers),
            Deed::ReopenSpillover { deadline_ms, row } => {
                self.reopen_spillover(seen, *deadline_ms, row)
            }
            Deed::DueSpillovers { at_most, skip } => self.due_spillovers(seen, *at_most, *skip),
            Deed::ForgetDeclined { spillovers } => self.forget_declined(spillovers),
            Deed::ForgetSpillover { spillovers } => self.forget_spillover(seen, spillovers),
            Deed::ReleaseCount { margin_ms, rows } => self.release_count(seen, *margin_ms, rows),
            Deed::Release { rows } => self.release(seen, rows),
            Deed::TransferOut(moved) => self.transfer_out(seen, moved),
            Deed::TransferIn(moved) => self.transfer_in(seen, moved),
            Deed::SettleTransfers { left } => self.settle_transfers(left),
            Deed::CheckHome { history, rows } => self.check_home(seen, history, rows),
            Deed::MarkChecked { token, history } => self.mark_checked(seen, *token, history),
            Deed::SetState(config) => self.set_state(seen, config),
            Deed::Halt { token, drop } => self.halt(seen, *token, *drop),
            Deed::RestoreDecisions {
                token,
                batch,
                margin_ms,
                decisions,
            } => self.restore_decisions(*token, batch, *margin_ms, decisions),
            Deed::RestoreBuyers {
                token,
                batch,
                counts,
            } => self.restore_buyers(*token, batch, counts),
            Deed::Adjust {
                token,
                last,
                restored,
                available,
                leaving,
                config,
                hold_ms,
                segments,
            } => {
                let adjusted = ((*available, *leaving), config, *hold_ms, *segments);
                self.adjust(seen, *token, (last, *restored), adjusted)
            }
            Deed::Inspect { from, at_most } => self.inspect(seen, from, *at_most),
        }
    }

    /// The counter that the entries lead to.
    pub fn replayed(&self) -> i64 {
        self.outbox
            .iter()
            .fold(0, |available, entry| match entry.effect {
                Effect::Set(units) => units.try_into().unwrap(),
                Effect::Add(units) => available + units,
            })
    }

    fn log(&mut self, seen: &Seen, effect: Effect, fields: Vec<(&'static str, Vec<u8>)>) {
        self.outbox.push(Entry {
            id: seen.entry.clone(),
            fields,
            effect,
        });
        if let Some(stock) = &mut self.stock {
            stock.last.clone_from(&seen.entry);
        }
    }

    fn open(
        &mut self,
        seen: &Seen,
        units: u64,
        config: &Config,
        hold_ms: i64,
        segments: u64,
    ) -> Reply {
        if let Some(stock) = &self.stock {
            return list![
                "exists",
                stock.config.epoch,
                stock.available,
                stock.last.clone()
            ];
        }
        let (config, last, entry) = (config.clone(), String::new(), seen.entry.clone());
        self.stock = Some(Stock {
            available: units,
            config: config.clone(),
            fence: 0,
            repairing: None,
            restored: 0,
            hold_ms,
            segments,
            last,
            gained: entry.clone(),
            left: entry,
            leaving: 0,
            checked: Some(seen.history.clone()),
        });
        self.log(
            seen,
            Effect::Set(units),
            vec![
                field("k", "opened"),
                field("u", units),
                field("e", config.epoch),
            ],
        );
        list!["opened", config.epoch, units, seen.entry.clone()]
    }

    fn reserve_home(
        &mut self,
        seen: &Seen,
        deadline_ms: i64,
        margin_ms: i64,
        rows: &[Row],
    ) -> Reply {
        if seen.now_ms > deadline_ms {
            return list!["late", seen.now_ms];
        }
        let before = self.clone();
        let stock = present!(self, seen.now_ms);
        let Config {
            state,
            limit,
            opens_ms,
            closes_ms,
            ..
        } = stock.config;
        let open = state == "open"
            && seen.now_ms >= opens_ms
            && (closes_ms == 0 || seen.now_ms < closes_ms);
        let (alone, expires_ms) = (stock.segments == 1, seen.now_ms + stock.hold_ms);
        let (mut taken, mut exceptions): (Vec<&Row>, Vec<Reply>) = (vec![], vec![]);
        let mut is_twice = false;
        for (index, row) in rows.iter().enumerate() {
            let (id, units) = (row.id(), row.units);
            let mut except = |code: &str, detail: String| {
                exceptions.extend([Reply::from(index), code.into(), detail.into()])
            };
            if let Some(known) = before.decisions.get(&id) {
                except("a", known.text());
                if let Decision::Declined {
                    units,
                    until_ms,
                    round,
                } = *known
                    && units == row.units
                    && until_ms < deadline_ms
                {
                    let declined = Decision::Declined {
                        units,
                        until_ms: deadline_ms,
                        round,
                    };
                    self.decisions.insert(id, declined);
                    self.spillovers.insert(row.packed(), deadline_ms);
                }
                continue;
            }
            let count = self.buyers.get(&row.buyer()).copied().unwrap_or(0) + i64::from(units);
            let takes = stock.available >= u64::from(units);
            if !open {
                except("n", format!("{state}:{opens_ms}:{closes_ms}"));
                continue;
            } else if limit > 0 && count > limit.try_into().unwrap() {
                except("l", String::new());
                continue;
            }
            let (decision, is_counted) = if takes {
                stock.available -= u64::from(units);
                taken.push(row);
                (Decision::Taken { units, expires_ms }, true)
            } else if alone {
                except("s", String::new());
                self.spillovers
                    .insert(row.packed(), deadline_ms + margin_ms);
                (
                    Decision::SoldOut {
                        units,
                        until_ms: deadline_ms,
                    },
                    false,
                )
            } else {
                except("d", String::new());
                self.spillovers.insert(row.packed(), deadline_ms);
                (Decision::declined(units, deadline_ms), true)
            };
            is_twice |= self.decisions.insert(id, decision).is_some();
            if is_counted {
                self.buyers.insert(row.buyer(), count);
            }
        }
        if is_twice {
            *self = before;
            return TWICE;
        }
        self.reserved(seen, expires_ms, &taken, exceptions)
    }

    fn reserve_next(&mut self, seen: &Seen, deadline_ms: i64, rows: &[Row]) -> Reply {
        if seen.now_ms > deadline_ms {
            return list!["late", seen.now_ms];
        }
        let before = self.clone();
        let stock = present!(self, seen.now_ms);
        let expires_ms = seen.now_ms + stock.hold_ms;
        let (mut taken, mut exceptions): (Vec<&Row>, Vec<Reply>) = (vec![], vec![]);
        let mut is_twice = false;
        for (index, row) in rows.iter().enumerate() {
            let mut except = |code: &str, detail: String| {
                exceptions.extend([Reply::from(index), code.into(), detail.into()])
            };
            let units = row.units;
            let decision = match before.decisions.get(&row.id()) {
                Some(known) => {
                    except("a", known.text());
                    continue;
                }
                None if stock.config.state == "open" && stock.available >= u64::from(units) => {
                    stock.available -= u64::from(units);
                    taken.push(row);
                    Decision::Taken { units, expires_ms }
                }
                None => {
                    except("d", String::new());
                    Decision::declined(units, deadline_ms)
                }
            };
            is_twice |= self.decisions.insert(row.id(), decision).is_some();
        }
        if is_twice {
            *self = before;
            return TWICE;
        }
        self.reserved(seen, expires_ms, &taken, exceptions)
    }

    fn reserve_again(
        &mut self,
        seen: &Seen,
        deadline_ms: i64,
        margin_ms: i64,
        rows: &[(Row, u32, bool)],
    ) -> Reply {
        if seen.now_ms > deadline_ms {
            return list!["late", seen.now_ms];
        }
        let stock = present!(self, seen.now_ms);
        if has_twice(rows.iter().map(|(row, ..)| row)) {
            return TWICE;
        }
        let expires_ms = seen.now_ms + stock.hold_ms;
        let (mut taken, mut exceptions): (Vec<&Row>, Vec<Reply>) = (vec![], vec![]);
        for (index, (row, asked_round, is_home)) in rows.iter().enumerate() {
            let mut except = |code: &str, detail: String| {
                exceptions.extend([Reply::from(index), code.into(), detail.into()])
            };
            let units = row.units;
            let until_ms = match self.decisions.get(&row.id()) {
                None if *is_home => {
                    except("x", String::new());
                    continue;
                }
                None => deadline_ms,
                Some(&Decision::Declined {
                    units: declined,
                    until_ms,
                    round,
                }) if declined == units && round < *asked_round => until_ms.max(deadline_ms),
                Some(known) => {
                    except("a", known.text());
                    continue;
                }
            };
            let (decision, due_ms) =
                if stock.config.state == "open" && stock.available >= u64::from(units) {
                    stock.available -= u64::from(units);
                    taken.push(row);
                    (Decision::Taken { units, expires_ms }, until_ms + margin_ms)
                } else {
                    except("d", String::new());
                    let round = *asked_round;
                    let declined = Decision::Declined {
                        units,
                        until_ms,
                        round,
                    };
                    (declined, until_ms)
                };
            self.decisions.insert(row.id(), decision);
            if *is_home {
                self.spillovers.insert(row.packed(), due_ms);
            }
        }
        self.reserved(seen, expires_ms, &taken, exceptions)
    }

    /// Writes the entry of a batch, and answers it.
    fn reserved(
        &mut self,
        seen: &Seen,
        expires_ms: i64,
        taken: &[&Row],
        exceptions: Vec<Reply>,
    ) -> Reply {
        let last = self.log_taken(seen, expires_ms, taken);
        let reply = ["ok".into(), seen.now_ms.into(), self.available().into()];
        let ends = [last.into(), expires_ms.into(), self.price().into()];
        let reply = reply.into_iter().chain(ends);
        Reply::List(reply.chain(exceptions).collect())
    }

    fn price(&self) -> String {
        let config = self.stock.as_ref().map(|stock| &stock.config);
        config.map_or_else(String::new, super::call::Config::price)
    }

    /// Returns the last entry.
    fn log_taken(&mut self, seen: &Seen, expires_ms: i64, taken: &[&Row]) -> String {
        if !taken.is_empty() {
            let units: i64 = taken.iter().map(|row| i64::from(row.units)).sum();
            let orders = taken.iter().flat_map(|row| row.packed()).collect();
            let mut fields = vec![field("k", "taken"), field("x", expires_ms)];
            let price = self.price();
            if !price.is_empty() {
                fields.push(field("p", price));
            }
            fields.push(("o", orders));
            self.log(seen, Effect::Add(-units), fields);
        }
        self.last()
    }

    fn last(&self) -> String {
        self.stock
            .as_ref()
            .map_or_else(String::new, |stock| stock.last.clone())
    }

    fn finish_spillover(
        &mut self,
        seen: &Seen,
        deadline_ms: i64,
        margin_ms: i64,
        spillovers: &[(Row, End)],
    ) -> Reply {
        if seen.now_ms > deadline_ms {
            return list!["late", seen.now_ms];
        }
        if self
            .stock
            .as_ref()
            .is_some_and(|stock| stock.repairing.is_some())
        {
            return list!["repairing", seen.now_ms];
        }
        let (mut changed, mut after): (usize, Vec<Reply>) = (0, vec![]);
        for (row, end) in spillovers {
            changed += usize::from(self.finish(row, end, margin_ms));
            let decision = self.decisions.get(&row.id());
            after.push(decision.map_or_else(String::new, Decision::text).into());
        }
        list!["ok", seen.now_ms, changed, after]
    }

    /// Whether the spillover became final.
    fn finish(&mut self, row: &Row, end: &End, margin_ms: i64) -> bool {
        let Some(&Decision::Declined {
            units,
            until_ms,
            round,
        }) = self.decisions.get(&row.id())
        else {
            return false;
        };
        let decision = match end {
            End::Elsewhere(place) => Decision::Elsewhere {
                units,
                place: place.clone(),
            },
            End::SoldOut(declined) if round <= *declined => Decision::SoldOut { units, until_ms },
            End::GivenUp(declined) if round <= *declined => Decision::GivenUp {
                units,
                until_ms,
                round: *declined,
            },
            End::SoldOut(_) | End::GivenUp(_) => return false,
        };
        if !matches!(decision, Decision::Elsewhere { .. }) {
            self.uncount(&row.buyer(), units);
        }
        self.decisions.insert(row.id(), decision);
        self.spillovers.insert(row.packed(), until_ms + margin_ms);
        true
    }

    fn reopen_spillover(&mut self, seen: &Seen, deadline_ms: i64, row: &Row) -> Reply {
        if seen.now_ms > deadline_ms {
            return list!["late", seen.now_ms];
        }
        let limit = present!(self, seen.now_ms).config.limit.cast_signed();
        let count = self.buyers.get(&row.buyer()).unwrap_or(&0) + i64::from(row.units);
        if let Some(&Decision::GivenUp {
            units,
            until_ms,
            round,
        }) = self.decisions.get(&row.id())
            && units == row.units
            && (limit == 0 || count <= limit)
        {
            let until_ms = until_ms.max(deadline_ms);
            let declined = Decision::Declined {
                units,
                until_ms,
                round: round + 1,
            };
            self.decisions.insert(row.id(), declined);
            self.buyers.insert(row.buyer(), count);
            self.spillovers.insert(row.packed(), until_ms);
        }
        let decision = self.decisions.get(&row.id());
        list![
            "ok",
            seen.now_ms,
            decision.map_or_else(String::new, Decision::text)
        ]
    }

    /// A count never falls below zero, and there is none at zero.
    fn uncount(&mut self, buyer: &str, units: u32) {
        let count = self.buyers.remove(buyer).unwrap_or(0) - i64::from(units);
        if count > 0 {
            self.buyers.insert(buyer.to_owned(), count);
        }
    }

    fn due_spillovers(&self, seen: &Seen, at_most: usize, skip: usize) -> Reply {
        let mut due: Vec<_> = self
            .spillovers
            .iter()
            .filter(|(_, due_ms)| **due_ms <= seen.now_ms)
            .collect();
        due.sort_by_key(|(packed, due_ms)| (**due_ms, packed.as_slice()));
        let decision = |packed: &[u8]| {
            self.decisions
                .get(&packed[..16])
                .map_or_else(String::new, Decision::text)
        };
        let spillover = |(packed, due_ms): (&Vec<u8>, &i64)| {
            [
                packed.clone().into(),
                due_ms.to_string().into(),
                decision(packed).into(),
            ]
        };
        let spillovers: Vec<Reply> = due
            .into_iter()
            .skip(skip)
            .take(at_most)
            .flat_map(spillover)
            .collect();
        list![seen.now_ms, spillovers]
    }

    fn forget_declined(&mut self, spillovers: &[(Row, i64)]) -> Reply {
        let before = self.decisions.len();
        for (row, until) in spillovers {
            if matches!(self.decisions.get(&row.id()), Some(Decision::Declined { until_ms, .. }) if until_ms <= until)
            {
                self.decisions.remove(&row.id());
            }
        }
        (before - self.decisions.len()).into()
    }

    fn forget_spillover(&mut self, seen: &Seen, spillovers: &[(Row, i64)]) -> Reply {
        let mut forgotten = 0_usize;
        for (row, due_ms) in spillovers {
            let (decision, as_read) = (
                self.decisions.get(&row.id()),
                self.spillovers.get(&row.packed()) == Some(due_ms),
            );
            if matches!(decision, Some(Decision::Declined { .. }))
                || !as_read
                || *due_ms > seen.now_ms
            {
                continue;
            }
            if matches!(
                decision,
                Some(Decision::SoldOut { .. } | Decision::GivenUp { .. })
            ) {
                self.decisions.remove(&row.id());
            }
            self.spillovers.remove(&row.packed());
            forgotten += 1;
        }
        list![seen.now_ms, forgotten]
    }

    fn release_count(&mut self, seen: &Seen, margin_ms: i64, rows: &[Row]) -> Reply {
        present!(self, seen.now_ms);
        let mut given_back = 0_usize;
        for row in rows {
            let units = match self.decisions.get(&row.id()) {
                Some(&Decision::Elsewhere { units, .. }) => units,
                Some(&Decision::Declined {
                    units, until_ms, ..
                }) => {
                    self.spillovers.insert(row.packed(), until_ms + margin_ms);
                    units
                }
                _ => continue,
            };
            given_back += 1;
            self.release_at_home(row, units, seen.now_ms);
        }
        list!["ok", seen.now_ms, given_back]
    }

    fn release_at_home(&mut self, row: &Row, units: u32, since_ms: i64) {
        self.decisions
            .insert(row.id(), Decision::Released { units, since_ms });
        self.uncount(&row.buyer(), units);
        self.buyers.insert(format!("\n{}", row.buyer()), 1);
    }

    fn release(&mut self, seen: &Seen, rows: &[(Row, bool)]) -> Reply {
        present!(self, seen.now_ms);
        if has_twice(rows.iter().map(|(row, _)| row)) {
            return TWICE;
        }
        let (mut released, mut back) = (vec![], 0);
        for (row, is_home) in rows {
            let Some(&Decision::Taken { units, .. }) = self.decisions.get(&row.id()) else {
                continue;
            };
            if *is_home {
                self.release_at_home(row, units, seen.now_ms);
            } else {
                self.decisions.insert(
                    row.id(),
                    Decision::Released {
                        units,
                        since_ms: seen.now_ms,
                    },
                );
            }
            back += u64::from(units);
            released.push(row.packed());
        }
        let orders = released.len();
        if orders > 0 {
            self.add(back.cast_signed());
            self.log(
                seen,
                Effect::Add(back.cast_signed()),
                vec![field("k", "released"), ("o", released.concat())],
            );
            self.gain(seen);
        }
        list!["ok", seen.now_ms, self.available(), self.last(), orders]
    }

    fn gain(&mut self, seen: &Seen) {
        self.stock.as_mut().unwrap().gained.clone_from(&seen.entry);
    }

    fn settle_transfers(&mut self, left: &str) -> Reply {
        let Some(stock) = &mut self.stock else {
            return list!["missing", ""];
        };
        let status = if stock.repairing.is_some() {
            "repairing"
        } else if stock.left != left {
            "moved"
        } else {
            stock.leaving = 0;
            "settled"
        };
        list![status, stock.left.clone()]
    }

    fn check_home(&self, seen: &Seen, history: &str, rows: &[(Row, bool)]) -> Reply {
        let Some(stock) = &self.stock else {
            return list!["missing"];
        };
        if stock.repairing.is_some() {
            return list!["repairing"];
        }
        if history != seen.history {
            return list!["moved"];
        }
        let forgotten = (0_u64..)
            .zip(rows)
            .filter(
                |(_, (row, has_units))| match self.decisions.get(&row.id()) {
                    None => true,
                    Some(Decision::Elsewhere { .. }) => !has_units,
                    Some(_) => false,
                },
            )
            .map(|(index, _)| Reply::from(index));
        let status = Reply::from("ok");
        Reply::List([status].into_iter().chain(forgotten).collect())
    }

    fn mark_checked(&mut self, seen: &Seen, token: u64, history: &str) -> Reply {
        let Some(stock) = &mut self.stock else {
            return list!["missing"];
        };
        if stock.repairing.is_some() {
            return list!["repairing"];
        }
        if token < stock.fence {
            return list!["fenced", stock.fence.to_string()];
        }
        if history != seen.history {
            return list!["moved"];
        }
        stock.checked = Some(history.to_owned());
        list!["marked"]
    }

    fn available(&self) -> u64 {
        self.stock.as_ref().map_or(0, |stock| stock.available)
    }

    fn add(&mut self, units: i64) {
        let stock = self.stock.as_mut().unwrap();
        stock.available = stock.available.checked_add_signed(units).unwrap();
    }

    fn transfer_out(&mut self, seen: &Seen, moved: &Move) -> Reply {
        let units = moved.units.min(self.available());
        let effect = -units.cast_signed();
        self.transfer(seen, "out", moved, effect, Decision::WentOut { units })
    }

    fn transfer_in(&mut self, seen: &Seen, moved: &Move) -> Reply {
        let (units, effect) = (moved.units, moved.units.cast_signed());
        self.transfer(seen, "in", moved, effect, Decision::CameIn { units })
    }

    fn transfer(
        &mut self,
        seen: &Seen,
        kind: &str,
        moved: &Move,
        effect: i64,
        decision: Decision,
    ) -> Reply {
        let stock = present!(self, seen.now_ms);
        let known = self.decisions.get(&moved.id());
        if let ("out", Some(&Decision::WentOut { units }))
        | ("in", Some(&Decision::CameIn { units })) = (kind, known)
        {
            let (available, last) = (stock.available, stock.last.clone());
            return list!["ok", seen.now_ms, units, available, last];
        }
        if moved.token < stock.fence {
            return list!["fenced", seen.now_ms, stock.fence.to_string()];
        }
        stock.fence = moved.token;
        let units = effect.unsigned_abs();
        self.add(effect);
        self.decisions.insert(moved.id(), decision);
        let fields = vec![
            field("k", kind),
            field("i", moved.name()),
            field("u", units),
            field("t", moved.token),
        ];
        self.log(seen, Effect::Add(effect), fields);
        if kind == "in" {
            self.gain(seen);
        } else {
            let stock = self.stock.as_mut().unwrap();
            stock.leaving += units;
            stock.left.clone_from(&seen.entry);
        }
        list!["ok", seen.now_ms, units, self.available(), self.last()]
    }

    fn set_state(&mut self, seen: &Seen, config: &Config) -> Reply {
        let Some(stock) = &mut self.stock else {
            return list!["missing", 0_i64];
        };
        let current = stock.config.epoch;
        if config.epoch <= current {
            return list![
                if config.epoch == current {
                    "same"
                } else {
                    "stale"
                },
                current
            ];
        }
        stock.config.clone_from(config);
        self.log(
            seen,
            Effect::Add(0),
            vec![
                field("k", "state"),
                field("s", config.state),
                field("e", config.epoch),
            ],
        );
        list!["set", config.epoch]
    }

    fn halt(&mut self, seen: &Seen, token: u64, drop: bool) -> Reply {
        if let Some(stock) = &self.stock
            && token < stock.fence
        {
            return list!["fenced", stock.fence.to_string()];
        }
        let nothing = Config {
            state: "paused",
            epoch: 0,
            limit: 0,
            opens_ms: 0,
            closes_ms: 0,
            price: None,
        };
        let empty = Stock {
            available: 0,
            config: nothing,
            fence: 0,
            repairing: None,
            restored: 0,
            hold_ms: 0,
            segments: 0,
            last: String::new(),
            gained: seen.entry.clone(),
            left: seen.entry.clone(),
            leaving: 0,
            checked: None,
        };
        if drop {
            self.decisions.clear();
            self.buyers.clear();
            self.spillovers.clear();
        }
        let stock = self.stock.get_or_insert(empty);
        if drop {
            stock.checked = None;
        }
        (stock.fence, stock.repairing, stock.restored) = (token, Some(token), 0);
        self.log(
            seen,
            Effect::Add(0),
            vec![field("k", "halted"), field("t", token)],
        );
        list!["halted", self.available(), seen.entry.clone()]
    }

    /// Why the holder of the token may not repair.
    fn not_repairing(&self, token: u64) -> Option<Reply> {
        let (repairing, fence) = self
            .stock
            .as_ref()
            .map_or((None, 0), |stock| (stock.repairing, stock.fence));
        (repairing != Some(token)).then(|| list!["fenced", fence.to_string()])
    }

    /// Why this is not the batch that is to come.
    fn not_the_next(&mut self, token: u64, batch: &Batch) -> Option<Reply> {
        if let Some(refusal) = self.not_repairing(token) {
            return Some(refusal);
        }
        let stock = self.stock.as_mut().unwrap();
        if stock.last != batch.last || stock.restored + 1 != batch.step {
            return Some(list!["moved", stock.last.clone()]);
        }
        stock.restored = batch.step;
        None
    }

    fn restore_decisions(
        &mut self,
        token: u64,
        batch: &Batch,
        margin_ms: i64,
        decisions: &[(Row, Decision, bool)],
    ) -> Reply {
        if let Some(refusal) = self.not_the_next(token, batch) {
            return refusal;
        }
        for (row, decision, is_home) in decisions {
            let before = self.decisions.insert(row.id(), decision.clone());
            if let Some(Decision::Declined { until_ms, .. }) = before
                && *is_home
            {
                self.spillovers.insert(row.packed(), until_ms + margin_ms);
            }
        }
        list!["ok", decisions.len()]
    }

    fn restore_buyers(&mut self, token: u64, batch: &Batch, counts: &[(String, u64)]) -> Reply {
        if let Some(refusal) = self.not_the_next(token, batch) {
            return refusal;
        }
        for (field, count) in counts {
            match count {
                0 => self.buyers.remove(field),
                count => self.buyers.insert(field.clone(), count.cast_signed()),
            };
        }
        list!["ok", counts.len()]
    }

    fn adjust(
        &mut self,
        seen: &Seen,
        token: u64,
        (last, restored): (&str, u64),
        adjusted: ((u64, u64), &Config, i64, u64),
    ) -> Reply {
        if let Some(refusal) = self.not_repairing(token) {
            return refusal;
        }
        let stock = self.stock.as_mut().unwrap();
        if stock.last != last || stock.restored != restored {
            return list!["moved", stock.last.clone()];
        }
        let ((available, leaving), config, hold_ms, segments) = adjusted;
        *stock = Stock {
            available,
            leaving,
            gained: seen.entry.clone(),
            left: seen.entry.clone(),
            config: config.clone(),
            repairing: None,
            hold_ms,
            segments,
            ..stock.clone()
        };
        let fields = vec![
            field("k", "adjusted"),
            field("u", available),
            field("e", config.epoch),
            field("t", token),
        ];
        self.log(seen, Effect::Set(available), fields);
        list!["adjusted", seen.entry.clone()]
    }

    fn inspect(&self, seen: &Seen, from: &str, at_most: usize) -> Reply {
        let Some(Stock {
            available,
            config,
            fence,
            repairing,
            last,
            gained,
            leaving,
            left,
            checked,
            ..
        }) = &self.stock
        else {
            return list!["missing"];
        };
        let (history, checked) = if from.is_empty() {
            (String::new(), String::new())
        } else {
            (seen.history.clone(), checked.clone().unwrap_or_default())
        };
        let from = if from.is_empty() {
            self.outbox.len()
        } else {
            self.outbox
                .iter()
                .position(|entry| entry.id == from)
                .unwrap_or(0)
        };
        let entries = self.outbox[from..].iter().take(at_most);
        let entries: Vec<Reply> = entries.map(Entry::reply).collect();
        let repairing = repairing.map_or_else(String::new, |token| token.to_string());
        let counts = [
            self.decisions.len(),
            self.buyers.len(),
            self.outbox.len(),
            self.spillovers.len(),
        ];
        let [decisions, buyers, outbox, spillovers] = counts;
        let Config {
            state,
            epoch,
            limit,
            opens_ms,
            closes_ms,
            ..
        } = config.clone();
        list![
            "ok",
            "available",
            *available,
            "state",
            state,
            "epoch",
            epoch,
            "last",
            last.clone(),
            "limit",
            limit,
            "opens_ms",
            opens_ms,
            "closes_ms",
            closes_ms,
            "price",
            config.price(),
            "fence",
            fence.to_string(),
            "repairing",
            repairing,
            "gained",
            gained.clone(),
            "leaving",
            *leaving,
            "left",
            left.clone(),
            "decisions",
            decisions,
            "buyers",
            buyers,
            "outbox",
            outbox,
            "spillovers",
            spillovers,
            "whole",
            1_i64,
            "history",
            history,
            "checked",
            checked,
            "entries",
            entries,
        ]
    }
}

impl Entry {
    /// As `XRANGE` shows it.
    pub fn reply(&self) -> Reply {
        let fields: Vec<Reply> = self
            .fields
            .iter()
            .flat_map(|(name, value)| [(*name).into(), value.clone().into()])
            .collect();
        list![self.id.clone(), fields]
    }
}

fn field(name: &'static str, value: impl ToString) -> (&'static str, Vec<u8>) {
    (name, value.to_string().into_bytes())
}

fn has_twice<'a>(rows: impl Iterator<Item = &'a Row>) -> bool {
    let mut seen = BTreeSet::new();
    !rows.into_iter().all(|row| seen.insert(row.id()))
}

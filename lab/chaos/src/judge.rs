//! Compares what was acknowledged with the ledger, after every hold has ended.

mod carts;
mod events;
mod history;
mod payments;
mod sold_out;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use self::sold_out::Evidence;
pub use self::{events::judge_events, payments::judge_payments, sold_out::InDoubt};

use anyhow::Result;
use client::{Audit, CartState, NewOrder};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use uuid::Uuid;

use crate::{
    api::{Api, is_quiet},
    env::TestEnv,
    history::{CartHistory, OrderHistory, Placement, SaleItem},
    ledger_view::{CartRow, ItemTotals, OrderRow},
    returns::ReturnLog,
    verdict::Verdict,
    workload::StockChanges,
};

const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Number of concurrent buyers of the remaining units.
const REST_BUYERS: usize = 32;

/// Judges a round from its histories, the ledger and the audits.
pub struct Judge<'a> {
    /// The environment of the round.
    pub env: &'a TestEnv,
    /// The items; the stock of the first was changed.
    pub items: &'a [Arc<SaleItem>],
    /// The history of every order.
    pub histories: &'a [OrderHistory],
    /// The history of every cart.
    pub carts: &'a [CartHistory],
    /// The history of the first item's stock.
    pub stock_changes: &'a StockChanges,
    /// When the units of ended orders were back.
    pub returns: &'a ReturnLog,
    /// The failover in which Redis may have lost acknowledged writes, until its repair.
    pub in_doubt: Option<InDoubt>,
    /// Limit for holds to end, units to return and transfers to arrive, and for the rest to be
    /// bought.
    pub quiet_within: Duration,
}

/// What [`Judge::rows_of`] reads.
type RowsOfItem = (
    HashMap<Uuid, OrderRow>,
    HashSet<Uuid>,
    HashMap<Uuid, std::time::Instant>,
);

/// Why an item did not become quiet.
struct NotQuiet {
    misplaced_units: u64,
    reason: String,
}

impl Judge<'_> {
    /// Waits until all items are quiet, and adds everything that is wrong to `verdict`.
    pub async fn judge(&self, verdict: &mut Verdict) {
        let acknowledgements = self.histories.iter().map(OrderHistory::acknowledgements);
        verdict.acknowledged = acknowledgements.sum();
        for order in self.histories {
            let about = describe(order);
            let contradictions = order.contradictions.iter();
            verdict.findings.extend(
                contradictions
                    .map(|contradiction| format!("{}: {about}: {contradiction}", order.item.id)),
            );
        }
        self.add_carts(verdict);
        for item in self.items {
            self.judge_item(item, verdict).await;
        }
        self.judge_divided_lines(verdict).await;
        match self.settled_carts().await {
            Ok((carts, orders)) => carts::judge(self.carts, &carts, &orders, verdict),
            Err(error) => {
                let finding = format!("the carts of the ledger could not be read: {error:#}");
                verdict.findings.push(finding);
            }
        }
    }

    /// What the monitor asks during the round. It ignores errors, because the database may be down.
    async fn judge_divided_lines(&self, verdict: &mut Verdict) {
        for item in self.items {
            match self.env.ledger_view.divided_lines(&item.id).await {
                Ok(0) => {}
                Ok(lines) => {
                    let finding = format!("{}: {lines} lines differ from their carts", item.id);
                    verdict.findings.push(finding);
                }
                Err(error) => {
                    let finding = format!("{}: lines could not be read: {error:#}", item.id);
                    verdict.findings.push(finding);
                }
            }
        }
    }

    fn add_carts(&self, verdict: &mut Verdict) {
        for cart in self.carts {
            verdict.acknowledged += cart.acknowledged.len();
            verdict.carts += usize::from(!cart.acknowledged.is_empty());
            let contradictions = cart.contradictions.iter();
            verdict.findings.extend(contradictions.map(|contradiction| {
                let about = (&cart.buyer, &cart.key, &cart.placement);
                format!("a cart, {about:?}: {contradiction}")
            }));
        }
    }

    /// The carts and orders of all items, as soon as no cart is being placed. A reconciler ends
    /// those whose placing was abandoned.
    async fn settled_carts(&self) -> Result<(HashMap<Uuid, CartRow>, HashMap<Uuid, OrderRow>)> {
        let deadline = Instant::now() + self.quiet_within;
        let ledger = &self.env.ledger_view;
        loop {
            let (mut carts, mut orders) = (HashMap::new(), HashMap::new());
            for item in self.items {
                carts.extend(ledger.carts(&item.id).await?);
            }
            for item in self.items {
                orders.extend(ledger.orders(&item.id).await?);
            }
            let is_open = |cart: &CartRow| cart.state == CartState::Placing;
            if !carts.values().any(is_open) || Instant::now() > deadline {
                return Ok((carts, orders));
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    async fn judge_item(&self, item: &SaleItem, verdict: &mut Verdict) {
        let quiet = self.wait_until_quiet(item).await;
        match self.rows_of(item).await {
            Ok((rows, lines, returned)) => {
                let may_lose = self.in_doubt.is_some();
                history::judge(item, self.histories, &rows, &lines, may_lose, verdict);
                let evidence = Evidence {
                    item,
                    histories: self.histories,
                    carts: self.carts,
                    rows: &rows,
                    lines: &lines,
                    returned: &returned,
                    // Nothing is in flight any more, and nothing was lost.
                    is_complete: quiet.is_ok() && !may_lose,
                    stock_min: self.stock_min(item),
                    in_doubt: self.in_doubt,
                };
                sold_out::judge(&evidence, verdict);
            }
            Err(error) => {
                let finding = format!("{}: the ledger could not be read: {error:#}", item.id);
                verdict.findings.push(finding);
            }
        }
        match quiet {
            Ok((totals, audit)) => self.judge_units(item, totals, &audit, verdict).await,
            Err(not_quiet) => self.judge_not_quiet(item, &not_quiet, verdict).await,
        }
    }

    /// The orders of an item, which of them are lines of carts, and since when the units of those that
    /// have ended are back: one may have taken some again since the monitor looked.
    async fn rows_of(&self, item: &SaleItem) -> Result<RowsOfItem> {
        let ledger = &self.env.ledger_view;
        let (rows, carts, returned) = (
            ledger.orders(&item.id).await?,
            ledger.carts(&item.id).await?,
            ledger.returned(&item.id).await?,
        );
        let lines = carts.values().flat_map(|cart| &cart.lines);
        let lines = lines.map(|line| line.order).collect();
        self.returns.note(&item.id, returned);
        Ok((rows, lines, self.returns.of(&item.id)))
    }

    /// The fewest units that the item had at any time.
    fn stock_min(&self, item: &SaleItem) -> u64 {
        let is_changed = self.items.first().is_some_and(|first| first.id == item.id);
        let withdrawn = if is_changed {
            self.stock_changes.withdrawn_max
        } else {
            0
        };
        item.stock.saturating_sub(withdrawn)
    }

    async fn judge_not_quiet(&self, item: &SaleItem, why: &NotQuiet, verdict: &mut Verdict) {
        verdict.stranded += why.misplaced_units.max(1);
        let finding = format!(
            "{}: not quiet after {:?}: {}",
            item.id, self.quiet_within, why.reason
        );
        verdict.findings.insert(0, finding);
        let open = self.env.ledger_view.open_transactions().await;
        let open = open.into_iter();
        verdict
            .findings
            .extend(open.map(|open| format!("open in the ledger: {open}")));
    }

    /// An item is quiet when no order is held, no unit is on its way, and the audit is correct.
    /// Then the full audit, which reads every order, must say the same as the one that reads none.
    async fn wait_until_quiet(&self, item: &SaleItem) -> Result<(ItemTotals, Audit), NotQuiet> {
        let deadline = Instant::now() + self.quiet_within;
        loop {
            let totals = self.env.ledger_view.totals(&item.id).await;
            let totals = totals.unwrap_or_default();
            let audit = self.env.api.admin.audit(&item.id).await;
            let mut full_audit = None;
            let is_settled =
                totals.held_orders + totals.returns + totals.transfers == 0 && totals.stock > 0;
            let misplaced_units = match audit {
                Ok(ref brief) if is_settled && is_quiet(brief) => {
                    match self.env.api.admin.full_audit(&item.id).await {
                        Ok(full) if is_quiet(&full) && full.agrees_with(brief) => {
                            return Ok((totals, full));
                        }
                        full => full_audit = Some(full),
                    }
                    0
                }
                Ok(ref audit) => audit.returning + audit.in_transit + audit.in_flight + audit.drift,
                Err(_) => 0,
            };
            if Instant::now() > deadline {
                return Err(NotQuiet {
                    misplaced_units,
                    reason: format!("{totals:?}, audit {audit:?}, full audit {full_audit:?}"),
                });
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    async fn judge_units(
        &self,
        item: &SaleItem,
        totals: ItemTotals,
        audit: &Audit,
        verdict: &mut Verdict,
    ) {
        let oversold = u64::try_from(totals.sold - totals.stock)
            .unwrap_or(0)
            .max(audit.oversold);
        if oversold > 0 {
            verdict.oversold += oversold;
            let finding = format!("{}: {totals:?}, audit {audit:?}", item.id);
            verdict.findings.push(finding);
        }
        verdict.findings.extend(self.wrong_stock(item, totals));
        let rest = audit.stock.saturating_sub(audit.confirmed);
        let bought = buy_rest(&self.env.api, item, rest, self.quiet_within).await;
        // More than the rest is possible if buying took so long that holds ended meanwhile.
        if bought < rest {
            verdict.stranded += rest - bought;
            verdict.findings.push(format!(
                "{}: {} units, {} of them paid, and only {bought} of the other {rest} could be bought; audit {audit:?}",
                item.id, audit.stock, audit.confirmed
            ));
        }
    }

    /// The stock must be the original one plus additions minus withdrawals. How many units a
    /// withdrawal found unsold was not recorded, so there is a range.
    fn wrong_stock(&self, item: &SaleItem, totals: ItemTotals) -> Option<String> {
        let none = StockChanges::default();
        let changes = if item.id == self.items[0].id {
            self.stock_changes
        } else {
            &none
        };
        let most = item.stock + changes.added + changes.possibly_added;
        let least = (item.stock + changes.added).saturating_sub(changes.withdrawn_max);
        let stock = u64::try_from(totals.stock).unwrap_or(0);
        (!(least..=most).contains(&stock)).then(|| {
            format!(
                "{}: {stock} units exist, expected {least} to {most}",
                item.id
            )
        })
    }
}

fn describe(order: &OrderHistory) -> String {
    let placement = match &order.placement {
        Placement::Acknowledged(id) => format!("order {id}"),
        Placement::Refused(code) => format!("an order that was refused ({code})"),
        Placement::Unknown => "an order".into(),
    };
    format!("{placement} of {}, key {}", order.buyer, order.key)
}

/// New buyers order one unit each, a few more than there are units. Returns how many succeeded.
async fn buy_rest(api: &Api, item: &SaleItem, units: u64, quiet_within: Duration) -> u64 {
    let Ok(api) = api.retrying_for(quiet_within) else {
        return 0;
    };
    let (mut orders, mut bought) = (JoinSet::new(), 0);
    for number in 0..units + 3 {
        if orders.len() >= REST_BUYERS {
            let placed = orders.join_next().await;
            bought += u64::from(placed.is_some_and(|placed| placed.unwrap_or(false)));
        }
        let (buyer, order) = (
            api.buyer(&format!("last-{number}")),
            NewOrder::new(&item.id, 1),
        );
        orders.spawn(async move { buyer.place(&order).await.is_ok() });
    }
    let placed = orders.join_all().await.into_iter();
    bought + placed.filter(|placed| *placed).count() as u64
}

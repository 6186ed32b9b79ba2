//! Judges refusals as sold out: each must have wanted more units than were free at some instant of
//! its request, or at most the lifetime of the sold-out cache before it.
//!
//! How many units were free is not known from outside, but a lower bound is: the fewest units that
//! the item ever had, minus all units that an order or a cart may have had at that instant. An
//! order may have them from its first request on. Its units are free again when the ledger shows so
//! ([`ReturnLog`](crate::returns::ReturnLog)), and this counts only if no later request of its own
//! can take units anew: a late payment does.
//!
//! After a failover two things are different, because Redis has lost acknowledged writes that no
//! replica had.
//!
//! * Units that had come in may be lost too, so Redis shows too few until the repair. That is no
//!   promise broken, so refusals between the failover and the first correct audits of all items are
//!   not judged. Those before it are, and those that began after it, when Redis and the ledger
//!   agree again.
//! * The ledger may lack an order that had units in Redis for a while. So the absence of a row
//!   proves nothing, and such an order counts as one that keeps its units. The ledger rejects what
//!   it cannot cover, and says `sold_out` to its buyer: these buyers are not judged, and count as
//!   if they had the units.
//!
//! Both make the bound lower and never higher: a refusal that is found is wrong.

use std::{
    collections::{HashMap, HashSet},
    iter,
    time::Instant,
};

use ::judge::{
    life::gives_back_for_good,
    sold_out::{CACHE_TTL, Claimed},
};
use client::OrderState;
use uuid::Uuid;

use crate::{
    history::{CartHistory, CartPlacement, OrderHistory, Placement, SaleItem},
    ledger_view::OrderRow,
    verdict::Verdict,
};

/// Claims that a finding shows.
const CLAIMS_SHOWN: usize = 20;

/// A time in which Redis may show fewer units than are free.
#[derive(Clone, Copy, Debug)]
pub struct InDoubt {
    /// Before the fault.
    pub from: Instant,
    /// When all audits were correct again. `None`: they never were.
    pub until: Option<Instant>,
}

impl InDoubt {
    fn covers(&self, (from, until): (Instant, Instant)) -> bool {
        self.from <= until && self.until.is_none_or(|ended| from <= ended)
    }
}

/// What refusals of one item are compared with.
pub(super) struct Evidence<'a> {
    /// The item.
    pub item: &'a SaleItem,
    /// The history of every order.
    pub histories: &'a [OrderHistory],
    /// The history of every cart.
    pub carts: &'a [CartHistory],
    /// The orders of the item in the ledger.
    pub rows: &'a HashMap<Uuid, OrderRow>,
    /// Which of them are lines of carts.
    pub lines: &'a HashSet<Uuid>,
    /// The orders whose units are back, and since when.
    pub returned: &'a HashMap<Uuid, Instant>,
    /// Whether the ledger has every order that ever had units.
    pub is_complete: bool,
    /// The fewest units that the item ever had.
    pub stock_min: u64,
    /// A failover that may have lost writes, until its repair.
    pub in_doubt: Option<InDoubt>,
}

/// Units that an order or a cart may have had.
struct Claim {
    from: Instant,
    /// `None`: for good.
    until: Option<Instant>,
    units: u64,
}

/// A refusal as sold out.
struct Refusal<'a> {
    buyer: &'a str,
    units: u32,
    span: (Instant, Instant),
}

/// Compares every refusal of the item with the units that were certainly free.
pub(super) fn judge(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    let claims = evidence.claims();
    verdict.returns_seen += claims.iter().filter(|claim| claim.until.is_some()).count();
    let claimed = Claimed::new(claims.iter().flat_map(Claim::changes));
    let rejected = evidence.rejected_buyers();
    let mut first_wrong = None;
    for refusal in evidence.refusals() {
        let (begun, answered) = refusal.span;
        let window = (
            begun.checked_sub(CACHE_TTL).unwrap_or(begun),
            answered.max(begun + CACHE_TTL),
        );
        let is_in_doubt = evidence.in_doubt.is_some_and(|time| time.covers(window));
        if is_in_doubt || rejected.contains(refusal.buyer) {
            continue;
        }
        verdict.sold_out_judged += 1;
        let free = claimed.free(evidence.stock_min, window.0, window.1);
        if free >= i64::from(refusal.units) {
            verdict.wrongly_sold_out += 1;
            first_wrong.get_or_insert(begun);
            verdict.findings.push(format!(
                "{}: {} was refused {} units as sold out, while at least {free} were free: {}",
                evidence.item.id,
                refusal.buyer,
                refusal.units,
                refusal.amid(&claims)
            ));
        }
    }
    if let Some(begun) = first_wrong {
        verdict.findings.push(evidence.around(begun));
    }
}

impl<'a> Evidence<'a> {
    /// What happened to the item around this instant, to explain a finding by: which order or cart had
    /// the units.
    fn around(&self, at: Instant) -> String {
        let span = |span: Option<(Instant, Instant)>| match span {
            Some((from, until)) => format!("{} to {}", relative(from, at), relative(until, at)),
            None => "never sent".into(),
        };
        let mut lines = vec![format!(
            "{}: at least {} units; times from the first refusal found:",
            self.item.id, self.stock_min
        )];
        for order in self.orders() {
            lines.push(format!(
                "order of {} {} for {}: {:?}, {} requests, {}, {:?} of {:?}",
                order.buyer,
                order.key,
                order.quantity,
                order.placement,
                order.requests,
                span(order.span),
                order.acknowledged,
                order.requested
            ));
        }
        let of_item = |cart: &&CartHistory| cart.units().contains_key(&*self.item.id);
        for cart in self.carts.iter().filter(of_item) {
            lines.push(format!(
                "cart of {} {} for {:?}: {:?}, {} requests, {}, {:?} of {:?}",
                cart.buyer,
                cart.key,
                cart.units(),
                cart.placement,
                cart.requests,
                span(cart.span),
                cart.acknowledged,
                cart.requested
            ));
        }
        for (id, row) in self.rows {
            let back = self.returned.get(id).map(|back| relative(*back, at));
            let what = if self.lines.contains(id) {
                "line"
            } else {
                "order"
            };
            lines.push(format!("row of {what} {id}: {row:?}, back {back:?}"));
        }
        lines.join("\n  ")
    }

    fn orders(&self) -> impl Iterator<Item = &'a OrderHistory> {
        let item = &self.item.id;
        self.histories
            .iter()
            .filter(move |order| order.item.id == *item)
    }

    fn refusals(&self) -> Vec<Refusal<'a>> {
        let of_order = |order: &'a OrderHistory| {
            Some(Refusal {
                buyer: &order.buyer,
                units: order.quantity,
                span: order.span?,
            })
        };
        let orders = self.orders().filter(|order| order.is_sold_out());
        let item = &self.item.id;
        let of_cart = move |cart: &'a CartHistory| {
            Some(Refusal {
                buyer: &cart.buyer,
                units: cart.sold_out_units(item)?,
                span: cart.span?,
            })
        };
        let carts = self.carts.iter().filter_map(of_cart);
        orders.filter_map(of_order).chain(carts).collect()
    }

    fn claims(&self) -> Vec<Claim> {
        let acknowledged = self.acknowledged();
        let rejected = self.rejected_buyers();
        let mut claims = Vec::new();
        for order in self.orders() {
            let Some((from, _)) = order.span else {
                continue;
            };
            let claim = |until| Claim {
                from,
                until,
                units: order.quantity.into(),
            };
            match order.placement {
                Placement::Acknowledged(id) => {
                    let for_good = gives_back_for_good(&order.acknowledged, &order.requested);
                    claims.push(claim(self.end_of(id, for_good)));
                }
                _ if rejected.contains(&*order.buyer) => claims.push(claim(None)),
                _ if order.may_exist_unacknowledged() => {
                    let others = self.unacknowledged(&order.buyer, false, &acknowledged);
                    claims.extend(self.end_of_one_of(&others, from).map(claim));
                }
                _ => {}
            }
        }
        let carts = self.carts.iter();
        claims.extend(carts.filter_map(|cart| self.claim_of_cart(cart, &acknowledged)));
        claims
    }

    fn claim_of_cart(&self, cart: &CartHistory, acknowledged: &HashSet<Uuid>) -> Option<Claim> {
        let (from, _) = cart.span?;
        let units = cart.may_have_taken(&self.item.id);
        if units == 0 {
            return None;
        }
        let until = match &cart.placement {
            CartPlacement::Acknowledged { orders, .. } => {
                let line = orders.get(&self.item.id)?;
                let for_good = gives_back_for_good(&cart.acknowledged, &cart.requested);
                self.end_of(*line, for_good)
            }
            _ => {
                let others = self.unacknowledged(&cart.buyer, true, acknowledged);
                self.end_of_one_of(&others, from)?
            }
        };
        Some(Claim { from, until, units })
    }

    fn end_of(&self, order: Uuid, gives_back_for_good: bool) -> Option<Instant> {
        let returned = self.returned.get(&order).copied();
        returned.filter(|_| gives_back_for_good)
    }

    /// The end of the claim of an order that its buyer cannot name, but which is one of these if it
    /// ever had units: when the units of all of them are back. The outer `None`: it had no units.
    fn end_of_one_of(&self, orders: &[Uuid], from: Instant) -> Option<Option<Instant>> {
        if !self.is_complete {
            return Some(None);
        }
        let ends: Option<Vec<_>> = orders.iter().map(|id| self.returned.get(id)).collect();
        match ends {
            None => Some(None),
            // Units that were back before the first request were not this order's.
            Some(ends) => ends
                .into_iter()
                .max()
                .filter(|end| **end > from)
                .map(|end| Some(*end)),
        }
    }

    /// A buyer's orders in the ledger that no acknowledgement names: single ones, or lines of
    /// carts.
    fn unacknowledged(
        &self,
        buyer: &str,
        is_line: bool,
        acknowledged: &HashSet<Uuid>,
    ) -> Vec<Uuid> {
        let rows = self.rows.iter();
        rows.filter(|(id, row)| {
            row.buyer == buyer
                && self.lines.contains(*id) == is_line
                && !acknowledged.contains(*id)
                && row.state != OrderState::Rejected
        })
        .map(|(id, _)| *id)
        .collect()
    }

    /// Every order of the item that an acknowledgement names, lines of carts included.
    fn acknowledged(&self) -> HashSet<Uuid> {
        let orders = self.orders().filter_map(|order| match order.placement {
            Placement::Acknowledged(id) => Some(id),
            _ => None,
        });
        let lines = self.carts.iter().filter_map(|cart| match &cart.placement {
            CartPlacement::Acknowledged { orders, .. } => orders.get(&self.item.id).copied(),
            _ => None,
        });
        orders.chain(lines).collect()
    }

    /// The buyers of orders that Redis took and the ledger could not cover.
    fn rejected_buyers(&self) -> HashSet<&'a str> {
        let rows = self.rows.values();
        rows.filter(|row| row.state == OrderState::Rejected)
            .map(|row| &*row.buyer)
            .collect()
    }
}

impl Refusal<'_> {
    /// The latest claims before its answer, to explain a finding by: the ledger is gone by then.
    fn amid(&self, claims: &[Claim]) -> String {
        let (begun, answered) = self.span;
        let when = |at: Instant| relative(at, begun);
        let before = claims.iter().filter(|claim| claim.from <= answered);
        let mut before: Vec<_> = before.collect();
        let ended = |claim: &Claim| claim.until.filter(|until| *until <= answered);
        before.sort_by_key(|claim| ended(claim).unwrap_or(claim.from));
        let latest = before.iter().rev().take(CLAIMS_SHOWN).map(|claim| {
            let until = claim.until.map_or("open".to_owned(), when);
            format!("{} from {} until {until}", claim.units, when(claim.from))
        });
        format!(
            "it took {:.3?}, and of {} claims the latest are, by its first request: {}",
            answered.duration_since(begun),
            before.len(),
            latest.collect::<Vec<_>>().join(", ")
        )
    }
}

fn relative(at: Instant, to: Instant) -> String {
    match at.checked_duration_since(to) {
        Some(after) => format!("{after:.3?} after"),
        None => format!("{:.3?} before", to.duration_since(at)),
    }
}

impl Claim {
    fn changes(&self) -> impl Iterator<Item = (Instant, i64)> {
        let units = i64::try_from(self.units).unwrap_or(i64::MAX);
        let end = self.until.map(|until| (until, -units));
        iter::once((self.from, units)).chain(end)
    }
}

impl CartHistory {
    /// The units of the item that the cart was refused as sold out.
    fn sold_out_units(&self, of: &str) -> Option<u32> {
        let CartPlacement::Refused {
            code,
            item: Some(item),
            ..
        } = &self.placement
        else {
            return None;
        };
        let mut lines = self.lines.iter();
        let line = lines.find(|(line, _)| line.id == of)?;
        (code == "sold_out" && item == of).then_some(line.1)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, HashMap, HashSet},
        sync::Arc,
        time::{Duration, Instant},
    };

    use client::OrderState::{self, *};
    use uuid::Uuid;

    use super::{Evidence, InDoubt, judge};
    use crate::{
        history::{CartHistory, CartPlacement, OrderHistory, Placement, SaleItem},
        ledger_view::OrderRow,
        verdict::Verdict,
    };

    /// A round of one item, with times in milliseconds.
    struct Case {
        start: Instant,
        item: Arc<SaleItem>,
        histories: Vec<OrderHistory>,
        carts: Vec<CartHistory>,
        rows: HashMap<Uuid, OrderRow>,
        lines: HashSet<Uuid>,
        returned: HashMap<Uuid, Instant>,
        in_doubt: Option<InDoubt>,
    }

    fn id(n: usize) -> Uuid {
        Uuid::from_u128(n as u128 + 1)
    }

    impl Case {
        fn new() -> Self {
            Self {
                start: Instant::now() + Duration::from_secs(1),
                item: Arc::new(SaleItem::vase()),
                histories: Vec::new(),
                carts: Vec::new(),
                rows: HashMap::new(),
                lines: HashSet::new(),
                returned: HashMap::new(),
                in_doubt: None,
            }
        }

        fn at(&self, ms: u64) -> Instant {
            self.start + Duration::from_millis(ms)
        }

        fn order(&self, placement: Placement, ms: u64, quantity: u32) -> OrderHistory {
            let buyer = format!("buyer-{}", self.histories.len());
            OrderHistory {
                requests: 1,
                placement,
                span: Some((self.at(ms), self.at(ms + 200))),
                ..OrderHistory::new(&self.item, buyer, "k", quantity)
            }
        }

        /// A cart of one unit, placed at once.
        fn cart(&self, placement: CartPlacement) -> CartHistory {
            CartHistory {
                requests: 1,
                placement,
                span: Some((self.at(0), self.at(200))),
                ..CartHistory::new(vec![(Arc::clone(&self.item), 1)], "cora", "k")
            }
        }

        /// An order for one unit was placed then.
        fn placed(mut self, ms: u64) -> Self {
            let number = self.histories.len();
            let order = self.order(Placement::Acknowledged(id(number)), ms, 1);
            self.has_row(number, &order.buyer, Expired);
            self.histories.push(order);
            self
        }

        fn has_row(&mut self, number: usize, buyer: &str, state: OrderState) {
            let row = OrderRow {
                buyer: buyer.into(),
                quantity: 1,
                state,
                payment: None,
            };
            self.rows.insert(id(number), row);
        }

        /// The ledger shows from then on that the units of an order are back.
        fn back(mut self, number: usize, ms: u64) -> Self {
            self.returned.insert(id(number), self.at(ms));
            self
        }

        fn refused(mut self, ms: u64, quantity: u32) -> Self {
            let order = self.order(Placement::Refused("sold_out".into()), ms, quantity);
            self.histories.push(order);
            self
        }

        fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
            change(&mut self);
            self
        }

        /// The verdict if the item never had fewer units than these.
        fn judged(&self, stock_min: u64) -> Verdict {
            let mut verdict = Verdict::default();
            let evidence = Evidence {
                item: &self.item,
                histories: &self.histories,
                carts: &self.carts,
                rows: &self.rows,
                lines: &self.lines,
                returned: &self.returned,
                is_complete: self.in_doubt.is_none(),
                stock_min,
                in_doubt: self.in_doubt,
            };
            judge(&evidence, &mut verdict);
            verdict
        }

        fn is_good(&self, stock_min: u64) -> bool {
            self.judged(stock_min).is_good()
        }
    }

    #[test]
    fn a_refusal_while_units_were_free_is_found() {
        let two = || Case::new().placed(0).placed(10);
        let verdict = two().refused(50, 1).judged(3);
        assert_eq!((verdict.wrongly_sold_out, verdict.sold_out_judged), (1, 1));
        assert!(!verdict.is_good());
        assert!(two().refused(50, 2).is_good(3), "one was left");
        assert!(two().placed(240).refused(50, 1).is_good(3), "none was");
        assert!(
            !two().placed(260).refused(50, 1).is_good(3),
            "the third came after the answer"
        );
    }

    #[test]
    fn a_unit_that_came_back_is_free_again() {
        let all_sold = || Case::new().placed(0).placed(10);
        assert!(all_sold().refused(5_000, 1).is_good(2));
        let verdict = all_sold().back(0, 3_000).refused(5_000, 1).judged(2);
        assert_eq!((verdict.wrongly_sold_out, verdict.returns_seen), (1, 1));
        assert!(
            all_sold().back(0, 4_950).refused(5_000, 1).is_good(2),
            "the sold-out cache may be as old"
        );
        assert!(
            all_sold()
                .back(0, 3_000)
                .placed(4_000)
                .refused(5_000, 1)
                .is_good(2),
            "it was sold again"
        );
        assert!(
            all_sold()
                .back(0, 3_000)
                .placed(5_150)
                .refused(5_000, 1)
                .is_good(2),
            "and at some instant of the request none was left"
        );
    }

    #[test]
    fn a_unit_that_a_late_payment_may_take_again_stays_claimed() {
        let paid_late = |acknowledged: &[OrderState]| {
            let case = Case::new().placed(0).back(0, 3_000).refused(5_000, 1);
            case.with(|case| {
                case.histories[0].requested.insert(Confirmed);
                case.histories[0].acknowledged = acknowledged.into();
            })
        };
        assert!(paid_late(&[Held]).is_good(1));
        assert!(!paid_late(&[Held, Confirmed, Refunded]).is_good(1));
    }

    #[test]
    fn an_order_without_an_answer_claims_units_only_if_the_ledger_has_one() {
        let unknown = || {
            let case = Case::new();
            let order = case.order(Placement::Unknown, 0, 1);
            case.with(|case| case.histories.push(order))
                .refused(5_000, 1)
        };
        assert!(!unknown().is_good(1), "it has had no units");
        let recorded = || unknown().with(|case| case.has_row(7, "buyer-0", Expired));
        assert!(recorded().is_good(1), "it may have them still");
        assert!(!recorded().back(7, 3_000).is_good(1), "they are back");
        let other = unknown().with(|case| case.has_row(7, "buyer-9", Expired));
        assert!(!other.is_good(1), "another buyer's order");
    }

    #[test]
    fn a_cart_that_failed_claims_its_lines_until_they_are_back() {
        let failed = |code: &str, item: &str| {
            let case = Case::new();
            let cart = case.cart(CartPlacement::Refused {
                code: code.into(),
                item: Some(item.into()),
                is_final: true,
            });
            case.with(|case| {
                case.has_row(7, "cora", Cancelled);
                case.lines.insert(id(7));
                case.carts.push(cart);
            })
        };
        let other = || failed("sold_out", "wall").refused(5_000, 1);
        assert!(other().is_good(1));
        assert!(!other().back(7, 3_000).is_good(1));
        let refused = failed("sold_out", "vase");
        assert_eq!(refused.judged(1).wrongly_sold_out, 1, "the cart's own");
        assert!(failed("cart_timed_out", "vase").is_good(1));
    }

    #[test]
    fn after_a_failover_refusals_are_judged_before_it_and_after_its_repair() {
        let refused = |ms| {
            Case::new().refused(ms, 1).with(|case| {
                case.in_doubt = Some(InDoubt {
                    from: case.at(1_000),
                    until: Some(case.at(3_000)),
                });
            })
        };
        for (ms, good) in [
            (500, false),
            (900, true),
            (2_000, true),
            (3_050, true),
            (3_200, false),
        ] {
            assert_eq!(refused(ms).is_good(1), good, "{ms}");
        }
        let never_repaired = refused(9_000).with(|case| {
            case.in_doubt = case.in_doubt.map(|time| InDoubt {
                until: None,
                ..time
            });
        });
        assert_eq!(never_repaired.judged(1).sold_out_judged, 0);
    }

    #[test]
    fn after_a_failover_a_missing_row_proves_nothing_and_a_rejected_buyer_is_not_judged() {
        let lost = || {
            let case = Case::new().placed(0).refused(9_000, 1);
            case.with(|case| {
                case.rows.clear();
                case.histories[0].placement = Placement::Unknown;
                case.in_doubt = Some(InDoubt {
                    from: case.at(1_000),
                    until: Some(case.at(3_000)),
                });
            })
        };
        assert!(lost().is_good(1));
        assert!(!lost().is_good(2));
        let rejected = lost().with(|case| case.has_row(7, "buyer-1", Rejected));
        let verdict = rejected.judged(2);
        assert_eq!((verdict.sold_out_judged, verdict.wrongly_sold_out), (0, 0));
    }

    #[test]
    fn the_lines_of_an_acknowledged_cart_are_claims_by_their_names() {
        let case = Case::new();
        let cart = case.cart(CartPlacement::Acknowledged {
            id: id(1),
            orders: BTreeMap::from([("vase".to_owned(), id(7))]),
        });
        let case = case.with(|case| case.carts.push(cart)).refused(5_000, 1);
        assert!(case.is_good(1));
        assert!(!case.back(7, 3_000).is_good(1));
    }
}

//! What the ledger has of the carts after the run, and whether any is half sold.
//!
//! The orders of all items are listed, and every cart is read that a response or an order names. A
//! buyer whose cart was refused does not know its id, so its lines are found by their orders.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use ::judge::{
    cart::{LineOrder, line_agrees},
    limit::above_limit,
};
use anyhow::{Context, Result};
use client::{Cart, CartLine, CartState, ListedOrder};
use futures::{StreamExt, TryStreamExt, stream};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::{admin::Admin, history::AcknowledgedCart, return_policy::ReturnPolicy, sale::Sale};

/// Carts that are read concurrently.
const READS: usize = 32;
/// Limit for a reconciler to end carts whose placing was abandoned.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Findings of a kind that are described one by one.
const DESCRIBED_MAX: usize = 5;

/// The ledger's carts, and the orders of all items that are sold in carts.
#[derive(Debug, Default)]
pub struct LedgerCarts {
    carts: HashMap<Uuid, Cart>,
    orders: HashMap<Uuid, ListedOrder>,
    /// Number of orders that say that they are lines of a cart.
    orders_of: HashMap<Uuid, usize>,
}

/// What the judge needs to know of the run.
#[derive(Debug)]
pub struct Promised<'a> {
    /// Every acknowledged cart.
    pub carts: &'a HashMap<Uuid, AcknowledgedCart>,
    /// The names of the items by their numbers.
    pub items: Vec<String>,
    /// Units that one buyer may hold.
    pub limit: u32,
    /// Carts that may exist although a later attempt was refused.
    pub may_be_unacknowledged: u64,
}

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CartsReport {
    /// Carts that the ledger has.
    pub recorded: u64,
    /// Carts whose lines do not all agree with them.
    pub half_sold: u64,
    /// Acknowledged carts that the ledger lacks, or has in another state.
    pub lost: u64,
    /// Descriptions of everything that is wrong.
    pub findings: Vec<String>,
}

impl LedgerCarts {
    /// Reads the ledger by the API, as soon as no cart is being placed any more.
    pub async fn read(sale: &Sale, admin: &Admin) -> Result<Self> {
        let deadline = Instant::now() + SETTLE_TIMEOUT;
        loop {
            let ledger = Self::read_now(sale, admin).await?;
            let is_open = |cart: &Cart| cart.state == CartState::Placing;
            if !ledger.carts.values().any(is_open) || Instant::now() > deadline {
                return Ok(ledger);
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    async fn read_now(sale: &Sale, admin: &Admin) -> Result<Self> {
        let mut orders = Vec::new();
        let in_carts = |policy: ReturnPolicy| policy == ReturnPolicy::InCarts;
        for (_, item) in sale.items.iter().filter(|(_, item)| in_carts(item.policy)) {
            orders.extend(admin.orders(&item.id).await?);
        }
        let mut ids: BTreeSet<Uuid> = orders.iter().filter_map(|order| order.cart).collect();
        ids.extend(sale.history().carts.keys());
        let carts = stream::iter(ids)
            .map(|id| admin.cart(id))
            .buffer_unordered(READS)
            .try_filter_map(async |cart| Ok(cart));
        let carts: Vec<_> = carts.try_collect().await.context("reading the carts")?;
        Ok(Self::new(carts, orders))
    }

    fn new(carts: Vec<Cart>, orders: impl IntoIterator<Item = ListedOrder>) -> Self {
        let orders: HashMap<_, _> = orders.into_iter().map(|order| (order.id, order)).collect();
        let mut orders_of = HashMap::new();
        for cart in orders.values().filter_map(|order| order.cart) {
            *orders_of.entry(cart).or_default() += 1;
        }
        Self {
            carts: carts.into_iter().map(|cart| (cart.id, cart)).collect(),
            orders,
            orders_of,
        }
    }

    /// Compares the ledger with itself and with what was promised.
    pub fn judge(&self, promised: &Promised<'_>) -> CartsReport {
        let mut findings = Findings::default();
        for cart in self.carts.values() {
            findings.extend("half sold", cart.id, self.parts(cart));
        }
        let half_sold = findings.count("half sold");
        for (id, cart) in promised.carts {
            findings.extend("lost", *id, self.broken_promise(cart, *id, promised));
        }
        let lost = findings.count("lost");
        let unknown: Vec<_> = self.unacknowledged(promised).collect();
        if unknown.len() as u64 > promised.may_be_unacknowledged {
            for id in unknown {
                let finding = "it has units, and was not acknowledged".to_owned();
                findings.extend("not acknowledged", id, Some(finding));
            }
        }
        for (buyer, item, units) in self.above(promised.limit) {
            let finding = format!("{buyer} has {units} units of {item}");
            findings.add("above the limit", finding);
        }
        CartsReport {
            recorded: self.carts.len() as u64,
            half_sold,
            lost,
            findings: findings.described(),
        }
    }

    /// How the lines of a cart differ from it, if they do.
    fn parts(&self, cart: &Cart) -> Option<String> {
        if cart.state == CartState::Placing {
            return Some("it is still being placed".into());
        }
        let agrees = |line: &CartLine| {
            let order = self.orders.get(&line.order).map(|order| LineOrder {
                state: order.state,
                is_of_cart: order.cart == Some(cart.id),
                has_its_terms: order.quantity == line.quantity && order.item == line.item,
            });
            line_agrees(cart.state, order)
        };
        let mut buyers = cart.lines.iter().filter_map(|line| {
            let order = self.orders.get(&line.order)?;
            order.buyer.as_deref()
        });
        let buyer = buyers.next();
        let is_shared = buyers.any(|other| Some(other) != buyer);
        let payments: BTreeSet<_> = cart
            .lines
            .iter()
            .map(|line| self.payment(line.order))
            .collect();
        let is_partly_paid = cart.state != CartState::Failed && payments.len() > 1;
        let is_wrong = is_shared || is_partly_paid || !cart.lines.iter().all(agrees);
        (is_wrong || self.has_more_lines(cart)).then(|| {
            let orders = cart.lines.iter().map(|line| self.orders.get(&line.order));
            let orders: Vec<_> = orders.map(|order| order.map(describe)).collect();
            format!(
                "it is {:?} with the lines {:?}: {orders:?}",
                cart.state, cart.lines
            )
        })
    }

    fn payment(&self, order: Uuid) -> Option<&str> {
        self.orders.get(&order)?.payment.as_deref()
    }

    /// Whether an order says that it is a line of the cart, and the cart does not list it.
    fn has_more_lines(&self, cart: &Cart) -> bool {
        let of_cart = cart.lines.iter().filter(|line| {
            let order = self.orders.get(&line.order);
            order.is_some_and(|order| order.cart == Some(cart.id))
        });
        of_cart.count() < self.orders_of.get(&cart.id).copied().unwrap_or_default()
    }

    /// How the ledger breaks the promise of a cart, if it does.
    fn broken_promise(
        &self,
        promise: &AcknowledgedCart,
        id: Uuid,
        promised: &Promised<'_>,
    ) -> Option<String> {
        let Some(cart) = self.carts.get(&id) else {
            return Some("it was acknowledged, and the ledger lacks it".into());
        };
        let lines = |cart: &Cart| -> BTreeMap<Uuid, (String, u32)> {
            let lines = cart.lines.iter();
            lines
                .map(|line| (line.order, (line.item.clone(), line.quantity)))
                .collect()
        };
        let wanted: BTreeMap<_, _> = promise
            .lines
            .iter()
            .map(|line| {
                (
                    line.order,
                    (promised.items[line.item].clone(), line.quantity),
                )
            })
            .collect();
        let may_be = |state| state == promise.state || has_expired(promise.state, state);
        let buyer = format!("buyer-{}", promise.buyer);
        let is_its_buyers = cart.lines.iter().all(|line| {
            let order = self.orders.get(&line.order);
            order.is_none_or(|order| order.buyer.as_ref() == Some(&buyer))
        });
        let is_kept = lines(cart) == wanted && may_be(cart.state) && is_its_buyers;
        (!is_kept).then(|| format!("{promise:?} was acknowledged, and the ledger has {cart:?}"))
    }

    /// Carts that have units, and were not acknowledged to their buyers.
    fn unacknowledged<'a>(&'a self, promised: &'a Promised<'_>) -> impl Iterator<Item = Uuid> + 'a {
        let has_units = |cart: &&Cart| cart.state.has_units();
        let units = self.carts.values().filter(has_units).map(|cart| cart.id);
        units.filter(|id| !promised.carts.contains_key(id))
    }

    /// Buyers with more units of an item than `limit`.
    fn above(&self, limit: u32) -> impl Iterator<Item = (&str, &str, u64)> {
        let orders = self.orders.values().map(|order| {
            let buyer = order.buyer.as_deref().unwrap_or_default();
            let units = u64::from(order.quantity);
            ((buyer, &*order.item), order.state, units)
        });
        let above = above_limit(limit, orders).into_iter();
        above.map(|((buyer, item), units)| (buyer, item, units))
    }
}

/// Its holds ended after the last response.
fn has_expired(promised: CartState, state: CartState) -> bool {
    (promised, state) == (CartState::Held, CartState::Expired)
}

fn describe(order: &ListedOrder) -> String {
    let ListedOrder {
        item,
        quantity,
        state,
        buyer,
        payment,
        cart,
        ..
    } = order;
    format!("{quantity} x {item} {state} for {buyer:?}, payment {payment:?}, cart {cart:?}")
}

/// Findings by kind: the first few are described, and the others counted.
#[derive(Debug, Default)]
struct Findings(BTreeMap<&'static str, Vec<String>>);

impl Findings {
    fn add(&mut self, kind: &'static str, finding: String) {
        self.0.entry(kind).or_default().push(finding);
    }

    fn extend(&mut self, kind: &'static str, cart: Uuid, finding: Option<String>) {
        if let Some(finding) = finding {
            self.add(kind, format!("cart {cart}: {finding}"));
        }
    }

    fn count(&self, kind: &'static str) -> u64 {
        self.0.get(kind).map_or(0, Vec::len) as u64
    }

    fn described(mut self) -> Vec<String> {
        let of_kind = |(kind, findings): (&&str, &mut Vec<String>)| {
            findings.sort_unstable();
            let count = findings.len();
            let described = findings.drain(..count.min(DESCRIBED_MAX));
            let mut described: Vec<_> =
                described.map(|it| format!("carts, {kind}: {it}")).collect();
            if count > DESCRIBED_MAX {
                described.push(format!("carts, {kind}: {} more", count - DESCRIBED_MAX));
            }
            described
        };
        self.0.iter_mut().flat_map(of_kind).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, sync::Arc};

    use client::{Cart, CartLine, CartState, ListedOrder, OrderState};
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::{CartsReport, LedgerCarts, Promised};
    use crate::{cart::LineRef, history::AcknowledgedCart};

    const ITEMS: [&str; 2] = ["vase", "bowl"];
    const ID: Uuid = Uuid::from_u128(1);

    fn order_id(line: usize) -> Uuid {
        Uuid::from_u128(10 + line as u128)
    }

    fn cart(state: CartState) -> Cart {
        let line = |number: usize| CartLine {
            item: ITEMS[number].into(),
            order: order_id(number),
            quantity: 1,
        };
        Cart {
            id: ID,
            state,
            lines: vec![line(0), line(1)],
            amount: 0,
            amount_check: None,
            currency: "USD".into(),
            expires_at: Timestamp::UNIX_EPOCH,
        }
    }

    fn order(line: usize, state: OrderState) -> ListedOrder {
        ListedOrder {
            id: order_id(line),
            item: ITEMS[line].into(),
            buyer: Some("buyer-7".into()),
            state,
            quantity: 1,
            amount: 0,
            currency: "USD".into(),
            payment: (state == OrderState::Confirmed).then(|| "pay-1".into()),
            created_at: None,
            expires_at: Timestamp::UNIX_EPOCH,
            version: 1,
            cart: Some(ID),
        }
    }

    fn orders(states: [OrderState; 2]) -> Vec<ListedOrder> {
        vec![order(0, states[0]), order(1, states[1])]
    }

    fn promise(state: CartState) -> HashMap<Uuid, AcknowledgedCart> {
        let line = |item| LineRef {
            order: order_id(item),
            item,
            quantity: 1,
        };
        let cart = AcknowledgedCart {
            buyer: 7,
            lines: Arc::new([line(0), line(1)]),
            state,
        };
        HashMap::from([(ID, cart)])
    }

    fn judge(
        promised: &HashMap<Uuid, AcknowledgedCart>,
        cart: Option<Cart>,
        orders: Vec<ListedOrder>,
    ) -> CartsReport {
        judge_within(promised, cart, orders, 2, 0)
    }

    fn judge_within(
        carts: &HashMap<Uuid, AcknowledgedCart>,
        cart: Option<Cart>,
        orders: Vec<ListedOrder>,
        limit: u32,
        may_be_unacknowledged: u64,
    ) -> CartsReport {
        LedgerCarts::new(cart.into_iter().collect(), orders).judge(&Promised {
            carts,
            items: ITEMS.map(Into::into).into(),
            limit,
            may_be_unacknowledged,
        })
    }

    #[test]
    fn a_cart_that_is_whole_is_good_in_every_state() {
        let table = [
            (CartState::Held, OrderState::Held),
            (CartState::Confirmed, OrderState::Confirmed),
            (CartState::Cancelled, OrderState::Cancelled),
            (CartState::Expired, OrderState::Expired),
            (CartState::RefundDue, OrderState::RefundDue),
            (CartState::Refunded, OrderState::Refunded),
        ];
        for (state, lines) in table {
            let report = judge(&promise(state), Some(cart(state)), orders([lines, lines]));
            assert_eq!(report.findings, Vec::<String>::new(), "{state:?}");
            assert_eq!((report.recorded, report.half_sold, report.lost), (1, 0, 0));
        }
    }

    #[test]
    fn a_cart_of_which_a_line_differs_is_half_sold() {
        use OrderState::{Cancelled, Confirmed, Expired, Held};
        let of = |states| orders(states);
        let changed = |change: fn(&mut ListedOrder)| {
            let mut orders = orders([Confirmed, Confirmed]);
            change(&mut orders[1]);
            orders
        };
        let table = [
            (CartState::Confirmed, of([Confirmed, Held])),
            (CartState::Confirmed, of([Confirmed, Cancelled])),
            (CartState::Cancelled, of([Cancelled, Held])),
            (CartState::Expired, of([Expired, Confirmed])),
            (CartState::Held, of([Held, Expired])),
            (CartState::Confirmed, vec![order(0, Confirmed)]),
            (CartState::Confirmed, changed(|order| order.quantity = 2)),
            (
                CartState::Confirmed,
                changed(|order| order.item = "jar".into()),
            ),
            (CartState::Confirmed, changed(|order| order.cart = None)),
            (
                CartState::Confirmed,
                changed(|order| order.buyer = Some("buyer-8".into())),
            ),
            (CartState::Confirmed, changed(|order| order.payment = None)),
            (CartState::Confirmed, {
                let mut orders = of([Confirmed, Confirmed]);
                orders.push(ListedOrder {
                    id: order_id(2),
                    ..order(0, Confirmed)
                });
                orders
            }),
            (CartState::Failed, of([Held, Cancelled])),
            (CartState::Failed, of([Confirmed, Cancelled])),
            (CartState::Placing, Vec::new()),
        ];
        for (state, orders) in table {
            let report = judge(&HashMap::new(), Some(cart(state)), orders.clone());
            assert_eq!(report.half_sold, 1, "{state:?} {orders:?}");
            assert!(report.findings[0].contains("half sold"), "{report:?}");
        }
    }

    #[test]
    fn a_failed_cart_may_have_lines_without_units_or_none() {
        use OrderState::Cancelled;
        for orders in [
            Vec::new(),
            vec![order(0, Cancelled)],
            orders([Cancelled, Cancelled]),
        ] {
            let report = judge(&HashMap::new(), Some(cart(CartState::Failed)), orders);
            assert_eq!(report.findings, Vec::<String>::new());
        }
    }

    #[test]
    fn an_acknowledged_cart_that_the_ledger_lacks_or_has_otherwise_is_lost() {
        use OrderState::{Cancelled, Confirmed, Expired};
        let promised = promise(CartState::Confirmed);
        assert_eq!(judge(&promised, None, Vec::new()).lost, 1);
        let failed = judge(&promised, Some(cart(CartState::Failed)), Vec::new());
        assert_eq!((failed.lost, failed.half_sold), (1, 0));
        let cancelled = (
            Some(cart(CartState::Cancelled)),
            orders([Cancelled, Cancelled]),
        );
        assert_eq!(judge(&promised, cancelled.0, cancelled.1).lost, 1);
        let expired = || (Some(cart(CartState::Expired)), orders([Expired, Expired]));
        assert_eq!(judge(&promised, expired().0, expired().1).lost, 1);
        let held = judge(&promise(CartState::Held), expired().0, expired().1);
        assert_eq!(held.findings, Vec::<String>::new(), "its hold has ended");
        let mut other = cart(CartState::Confirmed);
        other.lines[1].quantity = 2;
        let mut of_other = orders([Confirmed, Confirmed]);
        of_other[1].quantity = 2;
        let report = judge(&promised, Some(other), of_other);
        assert_eq!((report.lost, report.half_sold), (1, 0));
    }

    #[test]
    fn a_cart_with_units_that_was_not_acknowledged_is_found() {
        use OrderState::{Confirmed, Refunded};
        let found = |state, lines, allowed| {
            let orders = orders([lines, lines]);
            let report = judge_within(&HashMap::new(), Some(cart(state)), orders, 2, allowed);
            report.findings.len()
        };
        assert_eq!(found(CartState::Confirmed, Confirmed, 0), 1);
        assert_eq!(found(CartState::Confirmed, Confirmed, 1), 0);
        assert_eq!(
            found(CartState::Refunded, Refunded, 0),
            0,
            "it has no units"
        );
    }

    #[test]
    fn a_buyer_above_the_limit_is_found_in_the_ledger() {
        let paid = orders([OrderState::Confirmed, OrderState::Confirmed]);
        let judge = |limit| {
            let (promised, cart) = (promise(CartState::Confirmed), cart(CartState::Confirmed));
            judge_within(&promised, Some(cart), paid.clone(), limit, 0)
        };
        assert_eq!(judge(1).findings, Vec::<String>::new(), "one of each item");
        assert_eq!(judge(0).findings.len(), 2);
    }

    #[test]
    fn many_findings_of_a_kind_are_counted() {
        let carts = (0..9).map(|id| Cart {
            id: Uuid::from_u128(id),
            ..cart(CartState::Placing)
        });
        let ledger = LedgerCarts::new(carts.collect(), Vec::new());
        let report = ledger.judge(&Promised {
            carts: &HashMap::new(),
            items: Vec::new(),
            limit: 2,
            may_be_unacknowledged: 0,
        });
        assert_eq!((report.half_sold, report.findings.len()), (9, 6));
        assert_eq!(report.findings[5], "carts, half sold: 4 more");
    }
}

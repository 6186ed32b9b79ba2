//! Whether "sold out" was said while units were free.
//!
//! The judge sees requests and responses only: an order may have its units from its request until
//! its cancellation is acknowledged. [`Claimed`] says how many were free, at least, and a refusal is
//! wrong if these were as many as it wanted. The sold-out cache may be older than the request by its
//! lifetime.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use ::judge::sold_out::{CACHE_TTL, Claimed};
use uuid::Uuid;

/// The orders of one item: when they may have had units, and when they were refused.
#[derive(Debug, Default)]
pub struct Claims {
    /// Units that orders may have from then on, or have no more.
    changes: Vec<(Duration, i64)>,
    placed: HashMap<Uuid, Duration>,
    returned: HashSet<Uuid>,
    /// The first request of each order. Repeats of a refused order are refused for good.
    first_requests: HashMap<String, Duration>,
    refusals: Vec<Refusal>,
}

#[derive(Debug)]
struct Refusal {
    order: String,
    until: Duration,
    quantity: u32,
}

impl Claims {
    /// Notes a request for an order, which its name identifies before it has an id.
    pub fn requested(&mut self, order: String, begun: Duration) {
        let first = self.first_requests.entry(order).or_insert(begun);
        *first = begun.min(*first);
    }

    /// Notes a request that may have taken units, by an outcome that does not say so.
    pub fn may_have_taken(&mut self, since: Duration, quantity: u32) {
        self.changes.push((since, quantity.into()));
    }

    /// Notes a request that may have taken units, which have come back by `until`.
    pub fn may_have_taken_until(&mut self, since: Duration, until: Duration, quantity: u32) {
        self.changes.push((since, quantity.into()));
        self.changes.push((until, -i64::from(quantity)));
    }

    /// Notes a request whose order has its units. Several may be repeats of one order.
    pub fn took(&mut self, id: Uuid, since: Duration, quantity: u32) {
        let units = i64::from(quantity);
        match self.placed.get_mut(&id) {
            None => {
                self.placed.insert(id, since);
                self.changes.push((since, units));
            }
            Some(first) if since < *first => {
                self.changes.push((since, units));
                self.changes.push((*first, -units));
                *first = since;
            }
            Some(_) => {}
        }
    }

    /// Notes that the units of an order have come back. It may be a repeat.
    pub fn came_back(&mut self, id: Uuid, at: Duration, quantity: u32) {
        if self.returned.insert(id) {
            self.changes.push((at, -i64::from(quantity)));
        }
    }

    /// Notes an order that was refused as sold out.
    pub fn refused(&mut self, order: String, until: Duration, quantity: u32) {
        self.refusals.push(Refusal {
            order,
            until,
            quantity,
        });
    }

    /// Number of refusals while at least as many of the `stock` units were free as were wanted.
    pub fn wrong_refusals(&self, stock: u64) -> u64 {
        let claimed = Claimed::new(self.changes.iter().copied());
        let is_wrong = |refusal: &&Refusal| {
            let begun = self.first_requests.get(&refusal.order).copied();
            let since = begun.unwrap_or_default().saturating_sub(CACHE_TTL);
            claimed.free(stock, since, refusal.until) >= i64::from(refusal.quantity)
        };
        self.refusals.iter().filter(is_wrong).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uuid::Uuid;

    use super::Claims;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Two units, taken at 1 s and 2 s; one comes back at 3 s.
    fn claims() -> Claims {
        let mut claims = Claims::default();
        claims.took(Uuid::from_u128(1), ms(1000), 1);
        claims.took(Uuid::from_u128(2), ms(2000), 1);
        claims.came_back(Uuid::from_u128(1), ms(3000), 1);
        claims.came_back(Uuid::from_u128(1), ms(3500), 1);
        claims
    }

    fn refuse(claims: &mut Claims, since: Duration, until: Duration, quantity: u32) {
        let order = format!("{since:?}");
        claims.requested(order.clone(), since);
        claims.refused(order, until, quantity);
    }

    fn wrong(since: Duration, until: Duration, quantity: u32) -> u64 {
        let mut claims = claims();
        refuse(&mut claims, since, until, quantity);
        claims.wrong_refusals(2)
    }

    #[test]
    fn a_refusal_is_wrong_if_the_units_were_free_at_each_instant() {
        assert_eq!(wrong(ms(1200), ms(1900), 1), 1, "one was left");
        assert_eq!(wrong(ms(1200), ms(1900), 2), 0, "two were wanted");
        assert_eq!(wrong(ms(1200), ms(2000), 1), 0, "the last one was taken");
        assert_eq!(wrong(ms(2200), ms(2900), 1), 0, "none was left");
        assert_eq!(wrong(ms(500), ms(900), 2), 1, "before the first order");
        assert_eq!(wrong(ms(500), ms(900), 3), 0, "so many never were");
        assert_eq!(wrong(ms(3200), ms(9000), 1), 1, "one had come back");
        assert_eq!(wrong(ms(3200), ms(9000), 2), 0, "but not two");
    }

    #[test]
    fn a_refusal_may_be_older_than_its_request_by_the_lifetime_of_the_cache() {
        assert_eq!(wrong(ms(3100), ms(3200), 1), 0);
        assert_eq!(wrong(ms(3101), ms(3200), 1), 1);
    }

    #[test]
    fn an_order_may_have_its_units_since_the_earliest_of_its_requests() {
        let mut claims = claims();
        claims.took(Uuid::from_u128(2), ms(1500), 1);
        claims.took(Uuid::from_u128(2), ms(1800), 1);
        refuse(&mut claims, ms(1610), ms(1700), 1);
        assert_eq!(claims.wrong_refusals(2), 0);
        refuse(&mut claims, ms(1200), ms(1400), 1);
        assert_eq!(claims.wrong_refusals(2), 1);
        refuse(&mut claims, ms(3200), ms(3300), 1);
        assert_eq!(claims.wrong_refusals(2), 2, "it is one order");
    }

    #[test]
    fn an_unknown_outcome_may_have_taken_units() {
        let mut claims = claims();
        claims.may_have_taken(ms(2500), 1);
        refuse(&mut claims, ms(3200), ms(9000), 1);
        assert_eq!(claims.wrong_refusals(2), 0);
    }

    #[test]
    fn a_repeat_of_a_refused_order_is_refused_for_good() {
        let mut claims = claims();
        refuse(&mut claims, ms(2200), ms(2300), 1);
        claims.requested(format!("{:?}", ms(2200)), ms(5000));
        claims.refused(format!("{:?}", ms(2200)), ms(5100), 1);
        assert_eq!(claims.wrong_refusals(2), 0);
    }

    #[test]
    fn many_refusals_are_judged_like_one_by_one() {
        let mut claims = Claims::default();
        for n in 0..100_u64 {
            claims.took(Uuid::from_u128(n.into()), ms(n * 10), 1);
            refuse(&mut claims, ms(n * 10 + 101), ms(n * 10 + 105), 1);
        }
        // Orders 0 to n + 10 had units when the n-th was refused, and none was left from 90 on.
        assert_eq!(claims.wrong_refusals(90), 79);
    }
}

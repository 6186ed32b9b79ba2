//! Many buyers at once, over several instances.

use std::{collections::BTreeMap, sync::Arc};

use stock::{ItemStock, Outcome, Reservation, StockError};
use tokio::{sync::Barrier, task::JoinSet};

use crate::sale::Sale;

/// Instances of a sale. The sale's first one is among them.
pub async fn instances(sale: &Sale, count: usize) -> Vec<Arc<ItemStock>> {
    let mut all = vec![sale.at_first()];
    while all.len() < count {
        all.push(sale.instance().await);
    }
    all
}

/// Sends every ask at the same moment, to the instances in turn, and waits for all outcomes, which
/// come in the order of the asks.
pub async fn at_once(
    instances: &[Arc<ItemStock>],
    reservations: Vec<Reservation>,
) -> Vec<Result<Outcome, StockError>> {
    let (count, barrier) = (
        reservations.len(),
        Arc::new(Barrier::new(reservations.len())),
    );
    let mut orders = JoinSet::new();
    for (index, reservation) in reservations.into_iter().enumerate() {
        let (instance, barrier) = (
            Arc::clone(&instances[index % instances.len()]),
            Arc::clone(&barrier),
        );
        orders.spawn(async move {
            barrier.wait().await;
            (index, instance.order(reservation).await)
        });
    }
    let outcomes: BTreeMap<_, _> = orders.join_all().await.into_iter().collect();
    assert_eq!(outcomes.len(), count);
    outcomes.into_values().collect()
}

/// The same where every order must have an answer.
pub async fn all_answered(
    instances: &[Arc<ItemStock>],
    reservations: Vec<Reservation>,
) -> Vec<Outcome> {
    at_once(instances, reservations)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect()
}

pub fn held(outcomes: &[Outcome]) -> usize {
    outcomes
        .iter()
        .filter(|outcome| crate::sale::is_held(outcome))
        .count()
}

pub fn sold_out(outcomes: &[Outcome]) -> usize {
    outcomes
        .iter()
        .filter(|outcome| outcome.is_sold_out())
        .count()
}

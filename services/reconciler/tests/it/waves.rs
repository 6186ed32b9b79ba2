//! Waves: units that are added at a time, once.

use std::{sync::Arc, time::Duration};

use domain::{Item, Wave};
use jiff::Timestamp;
use testkit::{TestEnv, buyer, eventually, is_held, on_both_databases, tested};

use crate::env::quick;

#[tested(on_both_databases(crate::env::run))]
async fn a_wave_is_added_at_its_time_once_by_several_reconcilers(env: &Arc<TestEnv>) {
    env.record().await;
    for _ in 0..3 {
        env.reconcile(quick()).await;
    }
    let soon = Timestamp::now() + Duration::from_millis(700);
    let wave = |at, units| Wave {
        at: Timestamp::from_millisecond(jiff::Timestamp::as_millisecond(at)).unwrap(),
        units,
        is_added: false,
    };
    let never = soon + Duration::from_secs(3600);
    let waves = vec![wave(soon, 5), wave(never, 100)];
    let sale = env.sell_with(2, 2, |item| Item { waves, ..item }).await;
    for n in 0..2 {
        assert!(is_held(&sale.order(&buyer(n), "key", 1).await));
    }
    // On a busy machine the wave may be there already.
    let early = is_held(&sale.order(&buyer(9), "early", 1).await);
    assert!(!early || Timestamp::now() >= soon, "sold out");
    let left = 5 - usize::from(early);
    eventually("the units of the wave", async || {
        sale.available().await.iter().sum::<u64>() == left as u64
    })
    .await;
    assert!(Timestamp::now() >= soon, "not before its time");
    for n in 2..2 + left {
        assert!(is_held(&sale.order(&buyer(n), "key", 1).await), "{n}");
    }
    assert_eq!(sale.journal("wave").await.len(), 1);
    let item = sale.ledger.item(&sale.item.id).await.unwrap().unwrap();
    assert_eq!(item.stock, 7);
    assert_eq!(item.next_wave().map(|wave| wave.units), Some(100));
}

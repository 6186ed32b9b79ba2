//! How soon the units of a cart that fails can be bought again.

use super::*;

/// Carts that fail, one after the other.
const CARTS: usize = 50;

/// From the answer of the cart until another buyer has all of the units that it took.
async fn freed_after(env: &TestEnv, item: &str, sold_out: &str) -> Duration {
    let refused = env.cart("ann", item, &[(item, 5), (sold_out, 1)]).await;
    let answered = Instant::now();
    assert_eq!(refused.is(409, "sold_out").body["item"], json!(sold_out));
    for attempt in 0.. {
        let order = env.order(item, "eve", &format!("k{attempt}"), 5).await;
        if order.status == 201 {
            break;
        }
        assert!(answered.elapsed() < FREE_AGAIN * 100, "{order:?}");
    }
    answered.elapsed()
}

/// The fastest quarter has the bound, because other tests use the machine too, and their pauses are no
/// fault of ours. The median and the longest are printed.
#[tokio::test(flavor = "multi_thread")]
async fn the_units_of_a_failed_cart_are_free_again_within_a_tenth_of_a_second() {
    open_each(Options::default(), async |env| {
        let created = (0..=CARTS).map(|_| env.create(json!({ "stock": 5 })));
        let mut items = join_all(created).await;
        // Lines take their units by item: the last one refuses the carts.
        items.sort_unstable();
        let sold_out = items.pop().unwrap();
        env.order(&sold_out, "bob", "k", 5).await.is_held();
        let mut times = Vec::with_capacity(CARTS);
        for item in &items {
            times.push(freed_after(&env, item, &sold_out).await);
        }
        times.sort_unstable();
        let (quarter, median, longest) = (times[CARTS / 4], times[CARTS / 2], times[CARTS - 1]);
        println!("units of a failed cart are free again after {median:?}, {longest:?} at most");
        assert!(quarter < FREE_AGAIN, "{times:?}");
    })
    .await;
}

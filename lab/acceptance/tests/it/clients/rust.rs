//! The Rust client: orders alone and in batches, until an answer was lost, and then their ends.

use std::{collections::BTreeMap, time::Duration};

use client::{
    Admin, Client, Error, IdempotencyKey, NewItem, NewOrder, OrderBatcher, OrderState, Payment,
    PaymentKey, Placed, RetryPolicy, Token,
};
use futures::{TryStreamExt, future::join_all};
use testkit::timeout;

use super::ATTEMPT_TIMEOUT;

const ITEM: &str = "rust-orders";
const PRICE: u64 = 500;
const STOCK: u64 = 10_000;

/// Intents of a wave. Half of them are orders of their own, half travel in batches.
const WAVE: usize = 100;
const WAVES_MIN: usize = 3;
const WAVES_MAX: usize = 60;

/// How many orders are paid, and how many are cancelled.
const ENDED: usize = 20;

/// The client behind the proxy, and an admin who reaches the service directly.
struct TestEnv {
    client: Client,
    admin: Admin,
    batcher: OrderBatcher,
    jwt_secret: String,
    payment_key: PaymentKey,
}

/// What a buyer wants, and what came of it.
struct Intent {
    buyer: String,
    order: NewOrder,
    placed: Placed,
}

pub(super) async fn test(settings: &[(&str, String)]) {
    let env = TestEnv::new(settings);
    let terms = NewItem {
        price: Some(PRICE),
        limit_per_buyer: Some(1),
        ..NewItem::new(ITEM, STOCK)
    };
    env.admin.create_item(&terms).await.unwrap();
    let intents = env.order_until_an_answer_is_lost().await;
    env.each_intent_is_one_order(&intents).await;
    env.pay_and_cancel(&intents).await;
}

impl TestEnv {
    fn new(settings: &[(&str, String)]) -> Self {
        let setting = |wanted: &str| {
            let found = settings.iter().find(|(name, _)| *name == wanted);
            found.unwrap().1.clone()
        };
        let retry = RetryPolicy {
            deadline: timeout(),
            pause: Duration::from_millis(10),
            pause_max: Duration::from_millis(200),
            ..RetryPolicy::default()
        };
        let client = Client::builder([setting("STOCKADE_URL")])
            .attempt_timeout(ATTEMPT_TIMEOUT)
            .retry(retry)
            .build()
            .unwrap();
        let direct = Client::builder([setting("STOCKADE_DIRECT_URL")])
            .retry(retry)
            .build()
            .unwrap();
        let token = Token::bearer(setting("STOCKADE_ADMIN_TOKEN")).unwrap();
        Self {
            batcher: OrderBatcher::new(&client.admin(token.clone()), ITEM),
            client,
            admin: direct.admin(token),
            jwt_secret: setting("STOCKADE_JWT_SECRET"),
            payment_key: PaymentKey::new(setting("STOCKADE_PAYMENT_SECRET")),
        }
    }

    fn buyer(&self, name: &str) -> client::Buyer {
        let token = Token::mint_buyer(&self.jwt_secret, name, timeout() * 10);
        self.client.buyer(token)
    }

    /// A replay is the proof that an answer was lost, and its order was not.
    async fn order_until_an_answer_is_lost(&self) -> Vec<Intent> {
        let mut intents = Vec::new();
        let has_replays = |intents: &[Intent]| intents.iter().any(|one| one.placed.replayed);
        for wave in 0..WAVES_MAX {
            if wave >= WAVES_MIN && has_replays(&intents) {
                break;
            }
            let orders = (0..WAVE).map(|number| self.place(wave, number));
            intents.extend(join_all(orders).await);
        }
        assert!(has_replays(&intents), "the proxy has dropped no answer");
        intents
    }

    async fn place(&self, wave: usize, number: usize) -> Intent {
        let buyer = format!("rust-{wave}-{number}");
        let key = IdempotencyKey::new(format!("key-{buyer}")).unwrap();
        let order = NewOrder::new(ITEM, 1).with_key(key.clone());
        let placed = match number % 2 {
            0 => self.buyer(&buyer).place(&order).await,
            _ => self.batcher.order(&buyer, 1, key).await,
        };
        let placed = placed.unwrap_or_else(|error| panic!("{buyer}: {error}"));
        Intent {
            buyer,
            order,
            placed,
        }
    }

    async fn each_intent_is_one_order(&self, intents: &[Intent]) {
        let recorded = self.admin.all_item_orders(ITEM, None);
        let recorded: Vec<_> = recorded
            .map_ok(|row| (row.buyer.unwrap(), row.id))
            .try_collect()
            .await
            .unwrap();
        assert_eq!(recorded.len(), intents.len());
        let placed: BTreeMap<_, _> = intents
            .iter()
            .map(|intent| (intent.buyer.clone(), intent.placed.order.id))
            .collect();
        assert_eq!(recorded.into_iter().collect::<BTreeMap<_, _>>(), placed);
        let replays = intents.iter().filter(|intent| intent.placed.replayed);
        eprintln!(
            "rust: {} intents, {} replays",
            intents.len(),
            replays.count()
        );
    }

    async fn pay_and_cancel(&self, intents: &[Intent]) {
        let (paid, rest) = intents.split_at(ENDED);
        let cancelled = &rest[..ENDED];
        join_all(paid.iter().map(|intent| self.pay(intent))).await;
        join_all(cancelled.iter().map(|intent| self.cancel(intent))).await;
        for (state, expected) in [
            (OrderState::Confirmed, ENDED),
            (OrderState::Cancelled, ENDED),
            (OrderState::Held, intents.len() - 2 * ENDED),
        ] {
            let rows: Vec<_> = self
                .admin
                .all_item_orders(ITEM, Some(state))
                .try_collect()
                .await
                .unwrap();
            assert_eq!(rows.len(), expected, "{state}");
        }
        let audit = self.admin.full_audit(ITEM).await.unwrap();
        assert_eq!((audit.drift, audit.oversold), (0, 0), "{audit:?}");
    }

    /// The key of an order that is paid is still a purchase.
    async fn pay(&self, intent: &Intent) {
        let id = intent.placed.order.id;
        let payment = Payment::new(format!("pay-{id}"), id).amount(PRICE);
        let provider = self.client.payment_provider(self.payment_key.clone());
        let order = provider.report(&payment).await.unwrap();
        assert_eq!(order.state, OrderState::Confirmed);
        let again = self.buyer(&intent.buyer).place(&intent.order).await;
        let again = again.unwrap();
        assert_eq!((again.order.id, again.order.state), (id, order.state));
        assert!(again.replayed);
    }

    /// The key of an order that has ended is none.
    async fn cancel(&self, intent: &Intent) {
        let buyer = self.buyer(&intent.buyer);
        let order = buyer.cancel(intent.placed.order.id).await.unwrap();
        assert_eq!(order.state, OrderState::Cancelled);
        let again = buyer.place(&intent.order).await;
        let Err(Error::NoLongerHeld(ended)) = &again else {
            panic!("{again:?}");
        };
        assert_eq!(ended.id(), order.id);
    }
}

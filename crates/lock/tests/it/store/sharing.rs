//! Each operation takes a pool, a connection, a pooled connection or a transaction, and may be
//! spawned.

use lock::{
    Mode, Sequencer,
    store::{Assignments, Check, Claim, FencedTable, Write},
};
use sqlx::Connection;

use super::env::{TestEnv, token};

/// The key of the row that a lock protects, as the application derives it from the name.
fn key_of(sequencer: &Sequencer) -> i64 {
    sequencer
        .name
        .strip_prefix("item:")
        .and_then(|key| key.parse().ok())
        .unwrap()
}

macro_rules! sharing {
    ($database:ident, $pool:ty) => {
        mod $database {
            use super::*;

            #[tokio::test(flavor = "multi_thread")]
            async fn every_kind_of_connection_works() {
                let env = TestEnv::$database().await;
                let pool = <$pool>::connect(&env.url).await.unwrap();
                let items: FencedTable = env.items.clone();
                let [ours, key] = [33, 1_i64];
                let spawned = {
                    let (pool, items) = (pool.clone(), items.clone());
                    async move { items.claim(&pool, key, token(ours)).await.unwrap() }
                };
                assert_eq!(
                    tokio::spawn(spawned).await.unwrap(),
                    Claim::Claimed { version: 1 }
                );

                let mut connection = pool.acquire().await.unwrap();
                assert_eq!(
                    items
                        .claim(&mut *connection, key, token(ours))
                        .await
                        .unwrap(),
                    Claim::Claimed { version: 2 }
                );
                assert_eq!(
                    items
                        .claim(&mut connection, key, token(ours))
                        .await
                        .unwrap(),
                    Claim::Claimed { version: 3 }
                );

                let spawned = {
                    let items = items.clone();
                    async move {
                        let mut transaction = connection.begin().await.unwrap();
                        let assignments = Assignments::new()
                            .set("value", String::from("x"))
                            .set("other", None::<i64>);
                        let written = items
                            .write(&mut *transaction, key, token(ours), 3, assignments)
                            .await
                            .unwrap();
                        assert_eq!(
                            items
                                .check(&mut transaction, key, token(ours))
                                .await
                                .unwrap(),
                            Check::Current
                        );
                        transaction.commit().await.unwrap();
                        written
                    }
                };
                assert_eq!(
                    tokio::spawn(spawned).await.unwrap(),
                    Write::Applied { version: 4 }
                );

                let assignments = Assignments::new().set("other", 5_i64);
                assert_eq!(
                    items
                        .write(&pool, key, token(ours), 4, assignments)
                        .await
                        .unwrap(),
                    Write::Applied { version: 5 }
                );
            }

            #[tokio::test]
            async fn a_key_can_be_text() {
                let env = TestEnv::$database().await;
                let pool = <$pool>::connect(&env.url).await.unwrap();
                let items = FencedTable::builder("items")
                    .key_column("value")
                    .build()
                    .unwrap();
                let name = String::from("another");
                assert_eq!(
                    items.claim(&pool, &name, token(1)).await.unwrap(),
                    Claim::Claimed { version: 1 }
                );
                assert_eq!(
                    items.claim(&pool, name.as_str(), token(1)).await.unwrap(),
                    Claim::Claimed { version: 2 }
                );
                assert_eq!(
                    items.claim(&pool, name, token(1)).await.unwrap(),
                    Claim::Claimed { version: 3 }
                );
            }

            #[tokio::test]
            async fn a_sequencer_is_current_until_a_later_one_claims() {
                let env = TestEnv::$database().await;
                let pool = <$pool>::connect(&env.url).await.unwrap();
                let [earlier, later] = [33, 34].map(|number| Sequencer {
                    name: "item:1".into(),
                    mode: Mode::Exclusive,
                    token: token(number),
                });
                let check = async |sequencer: &Sequencer| {
                    env.items
                        .check_sequencer(&pool, key_of(sequencer), sequencer)
                        .await
                        .unwrap()
                };
                assert_eq!(check(&earlier).await, Check::Unclaimed);
                assert_eq!(
                    env.items
                        .claim(&pool, key_of(&earlier), earlier.token)
                        .await
                        .unwrap(),
                    Claim::Claimed { version: 1 }
                );
                assert_eq!(
                    (check(&earlier).await, check(&later).await),
                    (Check::Current, Check::Unclaimed)
                );
                assert_eq!(
                    env.items
                        .claim(&pool, key_of(&later), later.token)
                        .await
                        .unwrap(),
                    Claim::Claimed { version: 2 }
                );
                assert_eq!(
                    (check(&earlier).await, check(&later).await),
                    (
                        Check::Superseded {
                            current: later.token
                        },
                        Check::Current
                    )
                );
                let unknown = Sequencer {
                    name: "item:99".into(),
                    mode: Mode::Exclusive,
                    token: token(99),
                };
                assert_eq!(check(&unknown).await, Check::Missing);
            }
        }
    };
}

#[cfg(feature = "postgres")]
sharing!(postgres, sqlx::PgPool);
#[cfg(feature = "mysql")]
sharing!(mariadb, sqlx::MySqlPool);
#[cfg(feature = "sqlite")]
sharing!(sqlite, sqlx::SqlitePool);
